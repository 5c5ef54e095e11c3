#include "kernels/cuda/attention_hopper_schedule.h"

#include <algorithm>
#include <span>

namespace longhaul::cuda {
namespace {

// Masks may say "unlimited"; sums and differences with positions must not overflow.
constexpr std::int64_t kMostDistance = std::int64_t{1} << 62;

// A range of keys has at least so many units, and an item is cut into about so many tasks.
constexpr std::int64_t kMinSplitUnits = 16;
constexpr std::int64_t kTasksOfItem = 64;

std::int64_t end_of(const KeyUnit& unit) { return unit.first_position + unit.n_keys; }

std::vector<KeyUnit> units_of(const AttentionItem& item) {
  std::vector<KeyUnit> out;
  for (const KvBlockRef& block : item.blocks) {
    for (std::int64_t slot = 0; slot < block.n_tokens; slot += kUnitKeys) {
      out.push_back(
          {block.data, block.first_position + slot, static_cast<std::int32_t>(slot),
           static_cast<std::int32_t>(std::min<std::int64_t>(kUnitKeys, block.n_tokens - slot))});
    }
  }
  // The order of keys does not matter, and ranges can then be found for every tile.
  std::ranges::stable_sort(out, {}, &KeyUnit::first_position);
  return out;
}

// Units of `units` that a tile with queries at positions [first, last] may see: those that begin
// before its sink ends, and those that are not too old.
struct Seen {
  Extent sink;
  Extent recent;
};
Seen seen_units(std::span<const KeyUnit> units, std::int64_t first, std::int64_t last,
                const AttentionItemRef& item) {
  const auto count = [&](const auto& is_before) {
    return static_cast<std::int64_t>(std::ranges::partition_point(units, is_before) -
                                     units.begin());
  };
  const std::int64_t end = count([&](const KeyUnit& u) { return u.first_position <= last; });
  const std::int64_t sink_end =
      std::min(end, count([&](const KeyUnit& u) { return u.first_position < item.sink; }));
  const std::int64_t recent_begin =
      std::min(end, count([&](const KeyUnit& u) { return end_of(u) <= first - item.recent + 1; }));
  if (recent_begin <= sink_end) return {{0, 0}, {0, end}};
  return {{0, sink_end}, {recent_begin, end}};
}

class Passes {
 public:
  Passes(const AttentionArgs& args, std::int64_t most_units)
      : most_units_(most_units), head_dim_(args.shape.head_dim) {
    out_.emplace_back();
    for (const AttentionItem& item : args.items) {
      if (item.q.size() > 0) add_item(item);
    }
    if (out_.back().tasks.empty()) out_.pop_back();
  }
  std::vector<HopperPass> passes() { return std::move(out_); }

 private:
  void add_item(const AttentionItem& item) {
    const AttentionItemRef ref = {.q = item.q.data(),
                                  .q_token_stride = item.q.stride(0),
                                  .q_head_stride = item.q.stride(1),
                                  .gqa_group = item.q.dim(1),
                                  .n_rows = item.q.dim(0) * item.q.dim(1),
                                  .positions_at = 0,
                                  .sink = std::min(item.mask.sink, kMostDistance),
                                  .recent = std::min(item.mask.recent, kMostDistance),
                                  .state = state_ref(item.state)};
    const std::vector<KeyUnit> all = units_of(item);
    const Seen seen = seen_units(all, item.q_positions.front(), item.q_positions.back(), ref);
    std::vector<KeyUnit> units(all.begin() + seen.sink.begin, all.begin() + seen.sink.end);
    units.insert(units.end(), all.begin() + seen.recent.begin, all.begin() + seen.recent.end);
    // Parts that do not depend on the room that other items leave.
    for (std::span<const KeyUnit> left = units; !left.empty();) {
      const std::size_t n = std::min(left.size(), static_cast<std::size_t>(most_units_));
      const auto n_taken = static_cast<std::int64_t>(out_.back().units.size());
      if (n_taken > 0 && n_taken + static_cast<std::int64_t>(n) > most_units_) out_.emplace_back();
      add_part(item, ref, left.first(n));
      left = left.subspan(n);
    }
  }

  void add_part(const AttentionItem& item, AttentionItemRef ref, std::span<const KeyUnit> units) {
    HopperPass& pass = out_.back();
    const auto at = static_cast<std::int32_t>(pass.units.size());
    pass.units.insert(pass.units.end(), units.begin(), units.end());
    ref.positions_at = static_cast<std::int64_t>(pass.positions.size());
    pass.positions.insert(pass.positions.end(), item.q_positions.begin(), item.q_positions.end());
    pass.items.push_back(ref);
    const auto position = [&](std::int64_t row) {
      return item.q_positions[static_cast<std::size_t>(row / ref.gqa_group)];
    };
    // The last queries see the most keys: longest tasks first.
    const std::int64_t n_tiles = ceil_div(ref.n_rows, kHopperRows);
    for (std::int64_t tile = n_tiles - 1; tile >= 0; --tile) {
      const std::int64_t first = tile * kHopperRows;
      const Extent rows = {first, std::min<std::int64_t>(ref.n_rows, first + kHopperRows)};
      add_tile(rows, seen_units(units, position(rows.begin), position(rows.end - 1), ref), at,
               n_tiles);
    }
  }

  // `at`: the pass' number of the part's first unit.
  void add_tile(Extent rows, const Seen& seen, std::int64_t at, std::int64_t n_tiles) {
    HopperPass& pass = out_.back();
    const std::int64_t n_sink = seen.sink.size();
    const std::int64_t n_units = n_sink + seen.recent.size();
    if (n_units == 0) return;
    const std::int64_t n_ranges = std::clamp<std::int64_t>(
        std::min(n_units / kMinSplitUnits, kTasksOfItem / n_tiles), 1, kTasksOfItem);
    const auto item = static_cast<std::int32_t>(pass.items.size() - 1);
    const auto first_row = static_cast<std::int32_t>(rows.begin);
    const auto n_rows = static_cast<std::int32_t>(rows.size());
    if (n_ranges > 1) {
      pass.splits.push_back(
          {item, first_row, n_rows, static_cast<std::int32_t>(n_ranges), pass.n_partial_floats});
    }
    for (std::int64_t range = 0; range < n_ranges; ++range) {
      const std::int64_t begin = range * n_units / n_ranges;
      const std::int64_t end = (range + 1) * n_units / n_ranges;
      const auto sink = [&](std::int64_t i) {
        return static_cast<std::int32_t>(at + seen.sink.begin + std::min(i, n_sink));
      };
      const auto recent = [&](std::int64_t i) {
        return static_cast<std::int32_t>(at + seen.recent.begin +
                                         std::max<std::int64_t>(i - n_sink, 0));
      };
      pass.tasks.push_back(
          {item, first_row, n_rows, {sink(begin), recent(begin)}, {sink(end), recent(end)}});
      pass.members.push_back({n_ranges > 1 ? pass.n_partial_floats : -1, item});
      if (n_ranges > 1) pass.n_partial_floats += kHopperRows * (head_dim_ + 2);
    }
  }

  std::int64_t most_units_;
  std::int64_t head_dim_;
  std::vector<HopperPass> out_;
};

}  // namespace

std::vector<HopperPass> make_hopper_passes(const AttentionArgs& args, std::int64_t most_units) {
  return Passes(args, most_units).passes();
}

}  // namespace longhaul::cuda
