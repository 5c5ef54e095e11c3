#include "tools/eval/haystack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace longhaul {

Haystack make_haystack(const HaystackArgs& args) {
  auto n_hay = args.length - static_cast<std::int64_t>(args.start.size());
  for (const PlacedNeedle& needle : args.needles) {
    require(0 <= needle.depth && needle.depth <= 1,
            fmt::format("a record at depth {}: depths lie in [0, 1]", needle.depth));
    n_hay -= static_cast<std::int64_t>(needle.tokens.size());
  }
  require(n_hay >= 0,
          fmt::format("a document of {} tokens is too short for {} records: {} tokens are missing",
                      args.length, args.needles.size(), -n_hay));
  require(n_hay == 0 || !args.hay.empty(), "the haystack has no text");

  std::vector<std::size_t> order(args.needles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return args.needles[a].depth < args.needles[b].depth;
  });

  Haystack out;
  out.positions.resize(args.needles.size());
  out.tokens.reserve(static_cast<std::size_t>(args.length));
  out.tokens.assign(args.start.begin(), args.start.end());
  std::int64_t n_placed = 0;
  const auto add_hay_up_to = [&](std::int64_t end) {
    for (; n_placed < end; ++n_placed) {
      const auto at = static_cast<std::size_t>(args.first_hay + n_placed) % args.hay.size();
      out.tokens.push_back(args.hay[at]);
    }
  };
  for (const std::size_t i : order) {
    const PlacedNeedle& needle = args.needles[i];
    add_hay_up_to(std::llround(needle.depth * static_cast<double>(n_hay)));
    out.positions[i] = static_cast<std::int64_t>(out.tokens.size());
    out.tokens.insert(out.tokens.end(), needle.tokens.begin(), needle.tokens.end());
  }
  add_hay_up_to(n_hay);
  return out;
}

}  // namespace longhaul
