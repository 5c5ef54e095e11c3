// Lists of numbers on the command line: "1K,4K,1M" and "0,50,100". Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// Whole numbers from 1 on, separated by commas; K and M are 1024 and 1024 * 1024. Throws
// kInvalidArgument naming `flag` and the part that is wrong.
std::vector<std::int64_t> parse_counts(std::string_view text, std::string_view flag);

// Numbers from 0 to 100, separated by commas, as shares in [0, 1].
std::vector<double> parse_percentages(std::string_view text, std::string_view flag);

// "64K", "1M", "1000": the shortest text that parse_counts reads back.
std::string length_text(std::int64_t count);

}  // namespace longhaul
