// Sizes of values that formulas of memory count with.
#pragma once
#include <cstdint>

namespace longhaul {

inline constexpr std::int64_t kFloatBytes = 4;     // activations, queries, scores and partial sums
inline constexpr std::int64_t kPositionBytes = 8;  // of a token

}  // namespace longhaul
