// What somebody may have meant by a word that nobody knows. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// How many characters one must put in, take out, change or exchange with the next to make `a` of
// `b` (optimal string alignment distance).
std::size_t spelling_distance(std::string_view a, std::string_view b);

// The one of `known` that `word` is nearly: up to two slips (one in short words), or other letter
// case or separators; "" when none is. Of several the nearest.
std::string nearly(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace longhaul
