// The text that an evaluation reads and the three files that it writes.
#pragma once
#include <filesystem>
#include <string>

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

// Writes PREFIX.json, PREFIX.csv and PREFIX.svg.
void write_outputs(const std::string& prefix, const EvalOutputs& outputs);

}  // namespace longhaul
