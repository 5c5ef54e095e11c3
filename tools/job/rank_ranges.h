// Several ranks, as people are told of them.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace longhaul {

// "ranks 0-2, 5", "rank 3"; ascending. Pure.
std::string ranges_of(const std::vector<std::size_t>& ranks);

}  // namespace longhaul
