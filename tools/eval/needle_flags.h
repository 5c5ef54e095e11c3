// The flags of those evaluations that hide needles: which documents, and what is asked on them.
#pragma once
#include <cstdint>
#include <string>

#include "tools/eval/needle_runner.h"
#include "tools/flags/cli_app.h"

namespace longhaul {

struct NeedleFlags {
  std::string lengths;  // "1K,4K"
  std::string depths = "0,10,20,30,40,50,60,70,80,90,100";
  std::int64_t n_documents = 1;
  std::uint64_t seed = 1;
  NeedleTexts texts = {};
  std::int64_t max_answer_tokens = 32;
};

// --lengths, by default what `flags` has, --depths, --documents and --seed.
void add_needle_grid_flags(CLI::App& app, NeedleFlags& flags, const std::string& group);
// --haystack and --max-tokens.
void add_needle_text_flags(CLI::App& app, NeedleFlags& flags, const std::string& group);

}  // namespace longhaul
