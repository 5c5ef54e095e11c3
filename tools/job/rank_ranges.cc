#include "tools/job/rank_ranges.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace longhaul {

std::string ranges_of(const std::vector<std::size_t>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                 : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(parts, ", "));
}

}  // namespace longhaul
