#include "kernels/cuda/work_balance.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/device/gpu_memory.h"

namespace longhaul::cuda {
namespace {

// Whoever is free first takes the next task.
class Places {
 public:
  explicit Places(std::int64_t n_places) : free_at_(static_cast<std::size_t>(n_places)) {}

  void take(std::int64_t n_units) {
    std::ranges::pop_heap(free_at_, std::greater());
    free_at_.back() += n_units + kTaskUnits;
    end_ = std::max(end_, free_at_.back());
    std::ranges::push_heap(free_at_, std::greater());
  }
  std::int64_t end() const { return end_; }

 private:
  std::vector<std::int64_t> free_at_;
  std::int64_t end_ = 0;
};

// The longest `n_whole` tiles as they are, the others in ranges of `length` units.
struct Cut {
  std::size_t n_whole;
  std::int64_t length;
};

class Cuts {
 public:
  // `n_units` descends.
  Cuts(std::span<const std::int64_t> n_units, std::int64_t n_places)
      : n_units_(n_units),
        n_places_(n_places),
        best_{n_units.size(), 0},
        best_time_(time_of({n_units.begin(), n_units.end()}, n_places)) {
    const std::int64_t work = std::reduce(n_units.begin(), n_units.end()) +
                              kTaskUnits * static_cast<std::int64_t>(n_units.size());
    good_enough_ = work * 101 / (n_places * 100) + kTaskUnits;
  }

  // Whole tiles fill all places some times, or there are none; the others are cut so that every
  // place gets about one to four ranges. Shorter times than good ones would take more partial
  // states, and more of the host's time.
  Cut best() {
    const auto n_places = static_cast<std::size_t>(n_places_);
    const std::size_t n_fillings = n_units_.size() / n_places;
    std::size_t tried = n_units_.size() + 1;
    for (const std::size_t n : {n_fillings, n_fillings / 2, std::size_t{0}}) {
      if (n != std::exchange(tried, n)) try_cuts(n * n_places);
    }
    return best_;
  }

 private:
  void try_cuts(std::size_t n_whole) {
    Places filled(n_places_);
    for (const std::int64_t n : n_units_.first(n_whole)) filled.take(n);
    const auto left = n_units_.subspan(n_whole);
    const std::int64_t rest = std::reduce(left.begin(), left.end());
    for (std::int64_t n = 1; n <= 4; ++n) {
      for (std::int64_t more = 0; more < 6 && best_time_ > good_enough_; ++more) {
        const std::int64_t length = rest * (32 + more) / 32 / (n_places_ * n) + 1;
        try_cut(filled, {n_whole, std::max(length, kMinRangeUnits)});
      }
    }
  }

  void try_cut(Places places, const Cut& cut) {
    // Nothing would be cut, as with streaming heads, whose tiles are short: all are whole already.
    if (cut.n_whole == n_units_.size() || n_units_[cut.n_whole] <= cut.length) return;
    std::vector<std::int64_t> tasks;
    std::size_t n_partial = 0;
    for (const std::int64_t n_units : n_units_.subspan(cut.n_whole)) {
      if (n_units <= cut.length) {
        tasks.push_back(n_units);
        continue;
      }
      const std::vector<Extent> ranges = ranges_of(n_units, cut.length);
      n_partial += ranges.size();
      if (ranges.size() > static_cast<std::size_t>(kMostKeyRanges) ||
          n_partial > static_cast<std::size_t>(kMostPrefillRanges)) {
        return;
      }
      for (const Extent& range : ranges) tasks.push_back(range.size());
    }
    std::ranges::sort(tasks, std::greater());
    for (const std::int64_t n_units : tasks) places.take(n_units);
    if (places.end() >= best_time_) return;
    best_time_ = places.end();
    best_ = cut;
  }

  std::span<const std::int64_t> n_units_;
  std::int64_t n_places_;
  Cut best_;
  std::int64_t best_time_;
  std::int64_t good_enough_;
};

}  // namespace

std::int64_t time_of(std::vector<std::int64_t> task_units, std::int64_t n_places) {
  std::ranges::sort(task_units, std::greater());
  Places places(n_places);
  for (const std::int64_t n_units : task_units) places.take(n_units);
  return places.end();
}

std::vector<std::int64_t> range_lengths(std::span<const std::int64_t> n_units,
                                        std::int64_t n_places) {
  std::vector<std::size_t> order(n_units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return n_units[i]; });
  std::vector<std::int64_t> sorted;
  for (const std::size_t i : order) sorted.push_back(n_units[i]);
  const Cut cut = Cuts(sorted, n_places).best();
  std::vector<std::int64_t> out(n_units.begin(), n_units.end());
  for (std::size_t i = cut.n_whole; i < order.size(); ++i) out[order[i]] = cut.length;
  return out;
}

std::vector<Extent> ranges_of(std::int64_t n_units, std::int64_t length) {
  if (n_units <= length) return {{0, n_units}};
  std::int64_t n_ranges = ceil_div(n_units, length);
  const bool is_even = n_units - (n_ranges - 1) * length < kMinRangeUnits;
  if (is_even) --n_ranges;
  std::vector<Extent> out;
  for (std::int64_t i = 0; i < n_ranges; ++i) {
    const std::int64_t begin = is_even ? i * n_units / n_ranges : i * length;
    const std::int64_t end = is_even ? (i + 1) * n_units / n_ranges : (i + 1) * length;
    out.push_back({begin, std::min(end, n_units)});
  }
  return out;
}

}  // namespace longhaul::cuda
