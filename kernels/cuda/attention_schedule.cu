#include "kernels/cuda/attention_schedule.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>

#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "kernels/cuda/item_ref.h"
#include "kernels/cuda/sequence_heads.h"
#include "kernels/cuda/work_balance.h"

namespace longhaul::cuda {
namespace {

// An item on the plain path is cut into at most so many tasks.
constexpr std::int64_t kSimtTasks = 64;

using Blocks = std::span<const KvBlockRef>;

Blocks part_of(Blocks blocks, Extent extent) {
  return blocks.subspan(static_cast<std::size_t>(extent.begin),
                        static_cast<std::size_t>(extent.size()));
}

std::int64_t count_keys(Blocks blocks) {
  std::int64_t out = 0;
  for (const KvBlockRef& block : blocks) out += block.n_tokens;
  return out;
}

std::int64_t rows_of(const AttentionItem& item) { return item.q.dim(0) * item.q.dim(1); }

// The blocks of a tile, without those that it cannot see: those before its sink ends and those that
// are not too old. For blocks in ascending order only; in others the kernels skip what is hidden.
struct Seen {
  Extent sink;
  Extent recent;
};
Seen seen_blocks(Blocks blocks, std::int64_t first, std::int64_t last, const AttentionMask& mask) {
  const auto count = [&](const auto& is_before) {
    return std::ranges::partition_point(blocks, is_before) - blocks.begin();
  };
  const std::int64_t oldest = first - std::min(mask.recent, kMostDistance) + 1;
  const std::int64_t end = count([&](const KvBlockRef& b) { return b.first_position <= last; });
  const std::int64_t sink_end =
      std::min(end, count([&](const KvBlockRef& b) { return b.first_position < mask.sink; }));
  const std::int64_t recent_begin = std::min(
      end, count([&](const KvBlockRef& b) { return b.first_position + b.n_tokens <= oldest; }));
  if (sink_end > 0 && recent_begin <= sink_end) return {{}, {0, end}};
  return {{0, sink_end}, {recent_begin, end}};
}

bool ascends(Blocks blocks) {
  for (std::size_t b = 1; b < blocks.size(); ++b) {
    if (blocks[b].first_position < blocks[b - 1].first_position + blocks[b - 1].n_tokens) {
      return false;
    }
  }
  return true;
}

struct Positions {
  std::int64_t first;
  std::int64_t last;
};

// A tile of rows, and what it sees.
struct Tile {
  Extent rows;
  Positions positions;
  Seen seen;
  Blocks blocks;
  std::int64_t n_keys;
  std::int64_t range_length;  // in units

  std::int64_t n_units() const { return ceil_div(n_keys, kUnitKeys); }
};

// Whether queries at these positions see every key of the blocks, but for those that their heads do
// not see.
bool sees_all(Blocks blocks, const Positions& queries, const AttentionItemRef& item) {
  return std::ranges::all_of(blocks, [&](const KvBlockRef& block) {
    const std::int64_t end = block.first_position + block.n_tokens;
    return end - 1 <= queries.first &&
           (end <= item.sink || queries.last - block.first_position < item.recent);
  });
}

// Cuts blocks behind those with which end_of_range(range) keys are reached, into at most n_ranges.
template <typename EndOfRange>
std::vector<Extent> cut(Blocks blocks, std::int64_t n_ranges, const EndOfRange& end_of_range) {
  std::vector<Extent> out;
  Extent range;
  std::int64_t counted = 0;
  for (const KvBlockRef& block : blocks) {
    counted += block.n_tokens;
    ++range.end;
    const auto n_done = static_cast<std::int64_t>(out.size());
    if (n_done + 1 < n_ranges && counted >= end_of_range(n_done)) {
      out.push_back(range);
      range.begin = range.end;
    }
  }
  if (!range.empty()) out.push_back(range);
  return out;
}

// Ranges of nearly equal numbers of keys.
std::vector<Extent> even_ranges(const Tile& tile, std::int64_t n_tiles) {
  const std::int64_t n = std::clamp<std::int64_t>(
      std::min(tile.n_keys / kMinKeysOfRange, kSimtTasks / n_tiles), 1, kSimtTasks);
  return cut(tile.blocks, n, [&](std::int64_t range) { return (range + 1) * tile.n_keys / n; });
}

// Those that balance a prefill tile's work (work_balance.h).
std::vector<Extent> balanced_ranges(const Tile& tile) {
  const std::vector<Extent> ranges = ranges_of(tile.n_units(), tile.range_length);
  return cut(tile.blocks, static_cast<std::int64_t>(ranges.size()), [&](std::int64_t range) {
    return ranges[static_cast<std::size_t>(range)].end * kUnitKeys;
  });
}

// Ranges of a length that is a power of two and the same for forks whose own parts are not very
// different, so that their ranges of the document are the same.
std::vector<Extent> fixed_ranges(Blocks blocks) {
  const std::int64_t n_keys = count_keys(blocks);
  std::int64_t length = kMinKeysOfRange;
  while (length * kMostRanges < n_keys) length *= 2;
  return cut(blocks, kMostRanges, [&](std::int64_t range) { return (range + 1) * length; });
}

// One range of an item for decode, until it is known who shares its blocks.
struct Piece {
  AttentionMember member;
  Blocks blocks;
  std::int64_t n_rows;
  bool sees_all;
};

bool may_share(const AttentionSchedule& schedule, const Piece& a, const Piece& b) {
  const AttentionItemRef& item_a = schedule.items[static_cast<std::size_t>(a.member.item)];
  const AttentionItemRef& item_b = schedule.items[static_cast<std::size_t>(b.member.item)];
  const auto equal = [](const KvBlockRef& x, const KvBlockRef& y) {
    return x.data == y.data && x.first_position == y.first_position && x.n_tokens == y.n_tokens &&
           x.seen_by == y.seen_by;
  };
  return a.sees_all && b.sees_all && a.n_rows == b.n_rows && item_a.sink == item_b.sink &&
         item_a.recent == item_b.recent && std::ranges::equal(a.blocks, b.blocks, equal);
}

class Scheduler {
 public:
  Scheduler(const AttentionArgs& args, AttentionKernels kernels) : args_(args), kernels_(kernels) {}

  AttentionSchedule schedule() {
    for (const AttentionItem& item : args_.items) tiles_.push_back(tiles_of(item));
    for (const auto& heads : heads_of_sequences(args_.items)) balance(heads);
    for (std::size_t i = 0; i < args_.items.size(); ++i) add_item(i);
    add_decode_tasks();
    for (const AttentionPath path : {AttentionPath::kSimt, AttentionPath::kPrefill}) {
      std::ranges::stable_sort(out_.tasks[static_cast<std::size_t>(path)], std::greater(),
                               &AttentionTask::n_blocks);
    }
    return std::move(out_);
  }

 private:
  // Cuts the prefill tiles of these items together.
  void balance(const std::vector<std::size_t>& items) {
    std::vector<std::int64_t> n_units;
    const auto for_each_tile = [&](const auto& body) {
      for (const std::size_t i : items) {
        if (path_of(args_.items[i]) == AttentionPath::kPrefill)
          std::ranges::for_each(tiles_[i], body);
      }
    };
    for_each_tile([&](const Tile& tile) { n_units.push_back(tile.n_units()); });
    const std::vector<std::int64_t> lengths = range_lengths(n_units, kernels_.prefill_places);
    auto length = lengths.begin();
    for_each_tile([&](Tile& tile) { tile.range_length = *length++; });
  }

  void add_item(std::size_t index) {
    const std::vector<Tile>& tiles = tiles_[index];
    if (tiles.empty()) return;
    const AttentionItem& item = args_.items[index];
    const AttentionPath path = path_of(item);
    add_item_ref(index);
    const auto ranges = [&](const Tile& tile) {
      if (path == AttentionPath::kDecode) return fixed_ranges(tile.blocks);
      if (path == AttentionPath::kPrefill) return balanced_ranges(tile);
      return even_ranges(tile, static_cast<std::int64_t>(tiles.size()));
    };
    for (const Tile& tile : tiles) add_tile(item, path, tile, ranges(tile));
  }

  AttentionPath path_of(const AttentionItem& item) const {
    if (!kernels_.mma) return AttentionPath::kSimt;
    return rows_of(item) <= kDecodeRows ? AttentionPath::kDecode : AttentionPath::kPrefill;
  }

  std::vector<Tile> tiles_of(const AttentionItem& item) {
    std::vector<Tile> out;
    if (item.q.size() == 0 || item.blocks.empty()) return out;
    const std::int64_t n_rows = rows_of(item);
    require(n_rows <= std::int64_t{1} << 30, "attention: an item of more than 2^30 rows");
    const std::int64_t tile_rows = rows_of_tile(path_of(item));
    const bool sorted = ascends(item.blocks);
    for (std::int64_t first = 0; first < n_rows; first += tile_rows) {
      out.push_back(tile_of(item, {first, std::min(n_rows, first + tile_rows)}, sorted));
    }
    return out;
  }

  void add_item_ref(std::size_t index) {
    const AttentionItem& item = args_.items[index];
    const bool has_same_positions =
        index > 0 && are_of_one_sequence(args_.items[index - 1], item) && !out_.items.empty() &&
        args_.items[index - 1].q.size() > 0 && !args_.items[index - 1].blocks.empty();
    const auto positions_at = has_same_positions ? out_.items.back().positions_at
                                                 : static_cast<std::int64_t>(out_.positions.size());
    if (!has_same_positions) {
      out_.positions.insert(out_.positions.end(), item.q_positions.begin(), item.q_positions.end());
    }
    out_.items.push_back(item_ref(item, positions_at));
    all_blocks_at_ = -1;
  }

  Tile tile_of(const AttentionItem& item, Extent rows, bool sorted) {
    const auto position = [&](std::int64_t row) {
      return item.q_positions[static_cast<std::size_t>(row / item.q.dim(1))];
    };
    const std::int64_t first = position(rows.begin);
    const std::int64_t last = position(rows.end - 1);
    const Extent all = {0, static_cast<std::int64_t>(item.blocks.size())};
    const Seen seen = sorted ? seen_blocks(item.blocks, first, last, item.mask) : Seen{{}, all};
    const Blocks blocks = blocks_of(item, seen);
    return {rows, {first, last}, seen, blocks, count_keys(blocks), 0};
  }

  void add_tile(const AttentionItem& item, AttentionPath path, const Tile& tile,
                const std::vector<Extent>& ranges) {
    const auto number = static_cast<std::int32_t>(out_.items.size() - 1);
    const bool is_split = ranges.size() > 1;
    if (is_split) {
      out_.splits[static_cast<std::size_t>(path)].push_back(
          {.item = number,
           .first_row = static_cast<std::int32_t>(tile.rows.begin),
           .n_rows = static_cast<std::int32_t>(tile.rows.size()),
           .n_ranges = static_cast<std::int32_t>(ranges.size()),
           .partial_at = out_.n_partial_floats});
    }
    for (const Extent& range : ranges) {
      const AttentionMember member = {is_split ? out_.n_partial_floats : -1, number};
      if (is_split) out_.n_partial_floats += partial_rows(path) * (args_.shape.head_dim + 2);
      if (path == AttentionPath::kDecode) {
        const Blocks own = part_of(tile.blocks, range);
        pieces_.push_back(
            {member, own, tile.rows.size(), sees_all(own, tile.positions, out_.items.back())});
        continue;
      }
      const bool is_own_list = !tile.seen.sink.empty();
      if (!is_own_list && all_blocks_at_ < 0) all_blocks_at_ = add_blocks(item.blocks);
      const std::int64_t at = is_own_list ? add_blocks(part_of(tile.blocks, range))
                                          : all_blocks_at_ + tile.seen.recent.begin + range.begin;
      add_task(path, {&member, 1}, tile.rows.begin, tile.rows.size(), {at, at + range.size()});
    }
  }

  // Where sink and window lie apart, they make a list of the tile's own, which is short.
  Blocks blocks_of(const AttentionItem& item, const Seen& seen) {
    const Blocks recent = part_of(item.blocks, seen.recent);
    if (seen.sink.empty()) return recent;
    const Blocks sink = part_of(item.blocks, seen.sink);
    std::vector<KvBlockRef>& both = own_lists_.emplace_back(sink.begin(), sink.end());
    both.insert(both.end(), recent.begin(), recent.end());
    return both;
  }

  std::int64_t add_blocks(Blocks blocks) {
    const auto at = static_cast<std::int64_t>(out_.blocks.size());
    out_.blocks.insert(out_.blocks.end(), blocks.begin(), blocks.end());
    return at;
  }

  void add_task(AttentionPath path, std::span<const AttentionMember> members,
                std::int64_t first_row, std::int64_t member_rows, Extent blocks) {
    const auto n_members = static_cast<std::int64_t>(members.size());
    out_.tasks[static_cast<std::size_t>(path)].push_back(
        {.first_member = static_cast<std::int32_t>(out_.members.size()),
         .member_rows = static_cast<std::int32_t>(member_rows),
         .first_row = static_cast<std::int32_t>(first_row),
         .n_rows = static_cast<std::int32_t>(member_rows * n_members),
         .first_block = blocks.begin,
         .n_blocks = blocks.size()});
    out_.members.insert(out_.members.end(), members.begin(), members.end());
  }

  // Pieces that share their blocks, in the order of the first of each.
  std::vector<std::vector<const Piece*>> groups() const {
    std::vector<std::vector<const Piece*>> out;
    std::unordered_map<const std::byte*, std::vector<std::size_t>> groups_at;  // by first block
    for (const Piece& piece : pieces_) {
      std::vector<std::size_t>& candidates = groups_at[piece.blocks.front().data];
      const auto found = std::ranges::find_if(candidates, [&](std::size_t group) {
        return may_share(out_, *out[group].front(), piece);
      });
      if (found != candidates.end()) {
        out[*found].push_back(&piece);
        continue;
      }
      candidates.push_back(out.size());
      out.push_back({&piece});
    }
    return out;
  }

  void add_decode_tasks() {
    for (const std::vector<const Piece*>& group : groups()) {
      const std::int64_t at = add_blocks(group.front()->blocks);
      const Extent blocks = {at, static_cast<std::int64_t>(out_.blocks.size())};
      const std::int64_t member_rows = group.front()->n_rows;
      const auto most_rows = std::int64_t{kernels_.wide_decode ? kWideDecodeRows : kDecodeRows};
      std::vector<AttentionMember> members;
      for (std::size_t i = 0; i < group.size(); ++i) {
        members.push_back(group[i]->member);
        const auto n = static_cast<std::int64_t>(members.size());
        if (i + 1 < group.size() && (n + 1) * member_rows <= most_rows) continue;
        const bool is_wide = n * member_rows > kDecodeRows;
        add_task(is_wide ? AttentionPath::kWideDecode : AttentionPath::kDecode, members, 0,
                 member_rows, blocks);
        members.clear();
      }
    }
  }

  const AttentionArgs& args_;
  AttentionKernels kernels_;
  AttentionSchedule out_;
  std::vector<std::vector<Tile>> tiles_;  // of each item
  std::vector<Piece> pieces_;
  std::deque<std::vector<KvBlockRef>> own_lists_;  // that pieces refer to
  std::int64_t all_blocks_at_ = -1;                // of the item that is added now
};

}  // namespace

AttentionSchedule make_attention_schedule(const AttentionArgs& args, AttentionKernels kernels) {
  return Scheduler(args, kernels).schedule();
}

}  // namespace longhaul::cuda
