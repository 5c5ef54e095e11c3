#include "tools/identify/share_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/eval/line_plot.h"

namespace longhaul {

std::optional<ShareSearch> find_smallest_share(
    std::int64_t n_heads, double target,
    const std::function<std::optional<TriedShare>(std::int64_t)>& attempt) {
  ShareSearch search;
  const auto dense = attempt(n_heads);
  if (!dense) return std::nullopt;
  search.tried.push_back(*dense);
  std::int64_t too_few = -1;
  std::int64_t enough = n_heads;
  while (enough - too_few > 1) {
    const std::int64_t next = too_few < 0 ? 0 : (too_few + enough) / 2;
    const auto tried = attempt(next);
    if (!tried) return std::nullopt;
    search.tried.push_back(*tried);
    const bool is_good = tried->right >= target * dense->right && tried->distance <= 1 - target;
    (is_good ? enough : too_few) = next;
  }
  search.n_needed = enough;
  std::sort(search.tried.begin(), search.tried.end(),
            [](const TriedShare& a, const TriedShare& b) { return a.n_heads < b.n_heads; });
  return search;
}

std::string to_text(const ShareSearch& search, std::int64_t n_heads, double target) {
  const auto share = [&](std::int64_t n) {
    return static_cast<double>(n) / static_cast<double>(n_heads);
  };
  std::string text =
      fmt::format("{:>6}  {:>6}  {:>6}  {:>9}\n", "heads", "share", "right", "distance");
  for (const TriedShare& tried : search.tried) {
    text += fmt::format("{:>6}  {:>6.3f}  {:>6.3f}  {:>9.5f}\n", tried.n_heads,
                        share(tried.n_heads), tried.right, tried.distance);
  }
  return text + fmt::format("{} of {} heads are enough for {:g}: --retrieval-ratio {:.4g}\n",
                            search.n_needed, n_heads, target, share(search.n_needed));
}

std::string to_picture(const ShareSearch& search, std::int64_t n_heads) {
  LinePlot::Series right{.name = "right answers"};
  LinePlot::Series distance{.name = "distance of states"};
  for (const TriedShare& tried : search.tried) {
    const double share = static_cast<double>(tried.n_heads) / static_cast<double>(n_heads);
    right.points.emplace_back(share, tried.right);
    distance.points.emplace_back(share, tried.distance);
  }
  return to_svg(LinePlot{.title = "Heads that see every token, and what they keep",
                         .x_name = "share of heads that see every token",
                         .y_name = "rate; distance beside the dense model's mean square",
                         .series = {right, distance}});
}

}  // namespace longhaul
