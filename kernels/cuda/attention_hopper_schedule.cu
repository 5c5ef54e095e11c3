#include "kernels/cuda/attention_hopper_schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "kernels/cuda/item_ref.h"
#include "kernels/cuda/sequence_heads.h"
#include "kernels/cuda/work_balance.h"

namespace longhaul::cuda {
namespace {

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

// A tile of an item's rows, and what it sees of the units of a part.
struct Tile {
  Extent rows;
  Seen seen;
  std::int64_t n_units() const { return seen.sink.size() + seen.recent.size(); }
};

// Longest first; each task keeps its member.
void order_tasks(HopperPass& pass) {
  std::vector<std::size_t> order(pass.tasks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return pass.tasks[i].n_units(); });
  std::vector<HopperTask> tasks;
  std::vector<AttentionMember> members;
  tasks.reserve(order.size());
  members.reserve(order.size());
  for (const std::size_t i : order) {
    tasks.push_back(pass.tasks[i]);
    members.push_back(pass.members[i]);
  }
  pass.tasks = std::move(tasks);
  pass.members = std::move(members);
}

// Units of an item, which are converted in the same pass.
struct Part {
  const AttentionItem* item;
  AttentionItemRef ref;
  std::vector<KeyUnit> units;
};

std::vector<Tile> tiles_of(const Part& part) {
  const auto position = [&](std::int64_t row) {
    return part.item->q_positions[static_cast<std::size_t>(row / part.ref.gqa_group)];
  };
  std::vector<Tile> out;
  for (std::int64_t first = 0; first < part.ref.n_rows; first += kHopperRows) {
    const Extent rows = {first, std::min<std::int64_t>(part.ref.n_rows, first + kHopperRows)};
    const Tile tile = {
        rows, seen_units(part.units, position(rows.begin), position(rows.end - 1), part.ref)};
    if (tile.n_units() > 0) out.push_back(tile);
  }
  return out;
}

// The passes that the heads of one sequence would be done in alone. Parts of an item are in passes
// that follow each other: all of them are merged into the same state.
class SequenceParts {
 public:
  explicit SequenceParts(std::int64_t most_units)
      : most_units_(static_cast<std::size_t>(most_units)) {}

  void add(const AttentionItem& item) {
    if (item.q.size() == 0) return;
    const AttentionItemRef ref = item_ref(item, /*positions_at=*/0);
    const std::vector<KeyUnit> all = units_of(item);
    const Seen seen = seen_units(all, item.q_positions.front(), item.q_positions.back(), ref);
    std::vector<KeyUnit> units(all.begin() + seen.sink.begin, all.begin() + seen.sink.end);
    units.insert(units.end(), all.begin() + seen.recent.begin, all.begin() + seen.recent.end);
    std::size_t pass = 0;
    for (std::span<const KeyUnit> left = units; !left.empty(); ++pass) {
      const std::size_t n = std::min(left.size(), most_units_);
      while (pass < n_units_.size() && n_units_[pass] + n > most_units_) ++pass;
      if (pass == n_units_.size()) {
        n_units_.push_back(0);
        passes_.emplace_back();
      }
      n_units_[pass] += n;
      passes_[pass].push_back({&item, ref, {left.begin(), left.begin() + std::ptrdiff_t(n)}});
      left = left.subspan(n);
    }
  }
  const std::vector<std::vector<Part>>& passes() const { return passes_; }

 private:
  std::size_t most_units_;
  std::vector<std::size_t> n_units_;  // of each pass
  std::vector<std::vector<Part>> passes_;
};

class Passes {
 public:
  Passes(const AttentionArgs& args, const HopperLimits& limits)
      : limits_(limits), head_dim_(args.shape.head_dim) {
    for (const auto& heads : heads_of_sequences(args.items)) {
      SequenceParts sequence(limits.most_units);
      for (const std::size_t i : heads) sequence.add(args.items[i]);
      add_sequence(sequence);
    }
    std::erase_if(out_, [](const HopperPass& pass) { return pass.tasks.empty(); });
    std::ranges::for_each(out_, order_tasks);
  }
  std::vector<HopperPass> passes() { return std::move(out_); }

 private:
  void add_sequence(const SequenceParts& sequence) {
    std::size_t at = 0;
    for (const std::vector<Part>& parts : sequence.passes()) {
      std::size_t n = 0;
      for (const Part& part : parts) n += part.units.size();
      while (at < out_.size() &&
             out_[at].units.size() + n > static_cast<std::size_t>(limits_.most_units)) {
        ++at;
      }
      if (at == out_.size()) out_.emplace_back();
      add_parts(parts, out_[at++]);
    }
  }

  void add_parts(const std::vector<Part>& parts, HopperPass& pass) {
    std::vector<std::vector<Tile>> tiles;
    std::vector<std::int64_t> n_units;
    for (const Part& part : parts) {
      tiles.push_back(tiles_of(part));
      for (const Tile& tile : tiles.back()) n_units.push_back(tile.n_units());
    }
    const std::vector<std::int64_t> lengths = range_lengths(n_units, limits_.multiprocessors);
    pass.tasks.reserve(pass.tasks.size() + n_units.size());
    pass.members.reserve(pass.members.size() + n_units.size());
    std::size_t i = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto at = static_cast<std::int64_t>(pass.units.size());
      add_part(parts[p], pass);
      for (const Tile& tile : tiles[p]) add_tile(tile, lengths[i++], at, pass);
    }
  }

  static void add_part(const Part& part, HopperPass& pass) {
    pass.units.insert(pass.units.end(), part.units.begin(), part.units.end());
    // Heads of a sequence have the same positions, as a rule; those are there once.
    const std::span<const std::int64_t> positions = part.item->q_positions;
    const std::span<const std::int64_t> last =
        std::span(pass.positions).last(std::min(positions.size(), pass.positions.size()));
    pass.items.push_back(part.ref);
    const bool are_there = std::ranges::equal(positions, last);
    if (!are_there) pass.positions.insert(pass.positions.end(), positions.begin(), positions.end());
    pass.items.back().positions_at = std::ssize(pass.positions) - std::ssize(positions);
  }

  // `at`: the pass' number of the part's first unit.
  void add_tile(const Tile& tile, std::int64_t range_length, std::int64_t at, HopperPass& pass) {
    const std::vector<Extent> ranges = ranges_of(tile.n_units(), range_length);
    const auto item = static_cast<std::int32_t>(pass.items.size() - 1);
    const auto first_row = static_cast<std::int32_t>(tile.rows.begin);
    const auto n_rows = static_cast<std::int32_t>(tile.rows.size());
    const bool is_split = ranges.size() > 1;
    if (is_split) {
      pass.splits.push_back({item, first_row, n_rows, static_cast<std::int32_t>(ranges.size()),
                             pass.n_partial_floats});
    }
    const std::int64_t n_sink = tile.seen.sink.size();
    const auto sink = [&](std::int64_t i) {
      return static_cast<std::int32_t>(at + tile.seen.sink.begin + std::min(i, n_sink));
    };
    const auto recent = [&](std::int64_t i) {
      return static_cast<std::int32_t>(at + tile.seen.recent.begin +
                                       std::max<std::int64_t>(i - n_sink, 0));
    };
    for (const Extent& range : ranges) {
      pass.tasks.push_back({item,
                            first_row,
                            n_rows,
                            {sink(range.begin), recent(range.begin)},
                            {sink(range.end), recent(range.end)}});
      pass.members.push_back({is_split ? pass.n_partial_floats : -1, item});
      if (is_split) pass.n_partial_floats += kHopperRows * (head_dim_ + 2);
    }
  }

  HopperLimits limits_;
  std::int64_t head_dim_;
  std::vector<HopperPass> out_;
};

}  // namespace

std::vector<HopperPass> make_hopper_passes(const AttentionArgs& args, const HopperLimits& limits) {
  return Passes(args, limits).passes();
}

}  // namespace longhaul::cuda
