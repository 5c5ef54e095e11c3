// How few heads need to see every token: bisection along a ranking. Pure; what a number of heads is
// worth is asked of the caller.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace longhaul {

// The first `n_heads` of a ranking see every token, the others stream.
struct TriedShare {
  std::int64_t n_heads = 0;
  double right = 0;  // of questions about records, in [0, 1]
  double distance =
      0;  // of the final hidden states of answers, beside the dense model's mean square
};

struct ShareSearch {
  std::vector<TriedShare> tried;  // ascending heads
  std::int64_t n_needed = 0;      // the smallest number that is good enough
};

// A number is good enough when its rate of right answers is at least `target` times the dense
// model's, and its distance at most 1 - target. Tries all heads, none, and log2(n_heads) numbers
// between, taking for granted that more heads are never worse. Nothing when `attempt` gives
// nothing, which ends the search.
std::optional<ShareSearch> find_smallest_share(
    std::int64_t n_heads, double target,
    const std::function<std::optional<TriedShare>(std::int64_t)>& attempt);

// For people: the curve and the recommendation.
std::string to_text(const ShareSearch& search, std::int64_t n_heads, double target);
// Rate and distance over share, as SVG.
std::string to_picture(const ShareSearch& search, std::int64_t n_heads);

}  // namespace longhaul
