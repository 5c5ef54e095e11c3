// Lists of numbers as llama-bench takes them: "512", "512,1024", "0-4096+1024", "1K-64K*2". Pure.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace longhaul::bench {

// Numbers from 0 on, separated by commas; K and M are 1024 and 1024 * 1024. FIRST-LAST counts by 1,
// FIRST-LAST+STEP by STEP, FIRST-LAST*FACTOR multiplies. `flag` names the text in errors. Throws
// kInvalidArgument.
std::vector<std::int64_t> parse_ranges(std::string_view text, std::string_view flag);

struct PromptAndGeneration {
  std::int64_t n_prompt = 0;
  std::int64_t n_gen = 0;
  bool operator==(const PromptAndGeneration&) const = default;
};
// "512,128", both from 1 on.
PromptAndGeneration parse_pair(std::string_view text, std::string_view flag);

}  // namespace longhaul::bench
