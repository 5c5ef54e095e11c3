// The text that an evaluation reads and the three files that it writes.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace longhaul {

// The file, mapped. Throws kCorruptData when there is no such file: bad input, as in
// `longhaul run`.
MappedFile open_text(const std::filesystem::path& path);

struct EvalOutputs {
  std::string json;
  std::string csv;
  std::string svg;
};

// Throws kInvalidArgument unless write_outputs() can write there: asked before hours of work.
// An empty prefix writes nothing.
void check_output_prefix(const std::string& prefix);

// PREFIX; PREFIX.partial for results that a stop cut short, which must not take the place of whole
// ones. An empty prefix stays empty.
std::string prefix_for(const std::string& prefix, bool is_complete);

// A line for the end of results that a stop cut short: "stopped: 1 of 4 documents; ...".
std::string partial_note(std::size_t n_done, std::size_t n_asked, std::string_view what);

// Writes PREFIX.json, PREFIX.csv and PREFIX.svg.
void write_outputs(const std::string& prefix, const EvalOutputs& outputs);

}  // namespace longhaul
