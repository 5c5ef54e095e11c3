#include "kernels/cuda/table_schedule.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "kernels/cuda/item_ref.h"

namespace longhaul::cuda {
namespace {

std::int64_t round_down(std::int64_t a, std::int64_t b) { return (a - (a % b + b) % b) / b; }

// Numbers of the blocks that an item's rows may see: [0, n_sink) and [recent.begin, recent.end).
struct SeenNumbers {
  std::int64_t n_sink = 0;
  Extent recent;
};
SeenNumbers seen_numbers(std::int64_t block_size, const AttentionItem& item) {
  const BlockTable& table = *item.table;
  const std::int64_t base = table.first_position;
  const std::int64_t n_blocks = ceil_div(table.n_tokens, block_size);
  const auto clamped = [&](std::int64_t n) { return std::clamp<std::int64_t>(n, 0, n_blocks); };
  const std::int64_t first = item.q_positions.front();
  const std::int64_t last = item.q_positions.back();
  const std::int64_t oldest = first - std::min(item.mask.recent, kMostDistance) + 1;
  const std::int64_t end = clamped(round_down(last - base, block_size) + 1);
  const std::int64_t sink = std::min(item.mask.sink, kMostDistance);
  const std::int64_t n_sink =
      std::min(end, clamped(round_down(sink - base + block_size - 1, block_size)));
  const bool sees_none = base + table.n_tokens <= oldest;
  const std::int64_t begin =
      std::min(end, sees_none ? n_blocks : clamped(round_down(oldest - base, block_size)));
  if (n_sink > 0 && begin <= n_sink) return {0, {0, end}};
  return {n_sink, {begin, end}};
}

TableRef table_ref(std::int64_t block_size, const AttentionItem& item) {
  const BlockTable& table = *item.table;
  const SeenNumbers seen = seen_numbers(block_size, item);
  TableRef out = {.shared = table.shared,
                  .own = table.own,
                  .n_shared = table.n_shared,
                  .first_position = table.first_position,
                  .n_slots = table.n_tokens,
                  .n_sink = seen.n_sink,
                  .n_hidden = seen.recent.begin - seen.n_sink,
                  .n_blocks = seen.n_sink + seen.recent.size(),
                  .range_keys = kMinKeysOfRange,
                  .n_ranges = 0};
  if (out.n_blocks == 0) return out;
  const std::int64_t n_last =
      std::min(block_size, table.n_tokens - (seen.recent.end - 1) * block_size);
  const std::int64_t n_keys =
      seen.recent.empty() ? out.n_blocks * block_size : (out.n_blocks - 1) * block_size + n_last;
  while (out.range_keys * kMostRanges < n_keys) out.range_keys *= 2;
  const std::int64_t n_ranges =
      std::min(out.n_blocks, (out.n_blocks - 1) * block_size / out.range_keys + 1);
  out.n_ranges = std::min<std::int64_t>(n_ranges, kMostRanges);
  return out;
}

class Scheduler {
 public:
  Scheduler(const AttentionArgs& args, AttentionKernels kernels) : args_(args), kernels_(kernels) {}

  TableSchedule schedule() {
    std::int64_t n_ranges = 0;
    for (std::size_t i = 0; i < args_.items.size(); ++i) {
      add_item(args_.items[i], i > 0 ? &args_.items[i - 1] : nullptr);
      n_ranges = std::max(n_ranges, out_.tables.back().n_ranges);
    }
    out_.n_ranges = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n_ranges)));
    for (const std::vector<std::int64_t>& group : groups_) add_shared(group);
    for (std::size_t i = 0; i < own_begin_.size(); ++i) {
      const auto item = static_cast<std::int64_t>(i);
      const Extent ranges = {own_begin_[i], out_.tables[i].n_ranges};
      if (!ranges.empty()) add_task({&item, 1}, ranges);
    }
    return std::move(out_);
  }

 private:
  void add_item(const AttentionItem& item, const AttentionItem* before) {
    // Heads of a sequence have their positions in common.
    if (before == nullptr || before->q_positions.data() != item.q_positions.data() ||
        before->q_positions.size() != item.q_positions.size()) {
      positions_at_ = static_cast<std::int64_t>(out_.positions.size());
      out_.positions.insert(out_.positions.end(), item.q_positions.begin(), item.q_positions.end());
    }
    const auto number = static_cast<std::int64_t>(out_.items.size());
    out_.items.push_back(item_ref(item, positions_at_));
    out_.tables.push_back(table_ref(args_.shape.block_size, item));
    const TableRef& table = out_.tables.back();
    const bool is_split = table.n_ranges > 1;
    partial_at_.push_back(is_split ? out_.n_partial_floats : -1);
    own_begin_.push_back(0);
    if (!is_split) return;
    out_.splits.push_back({.item = static_cast<std::int32_t>(number),
                           .first_row = 0,
                           .n_rows = static_cast<std::int32_t>(out_.items.back().n_rows),
                           .n_ranges = static_cast<std::int32_t>(table.n_ranges),
                           .partial_at = out_.n_partial_floats});
    out_.n_partial_floats += table.n_ranges * kDecodeRows * (args_.shape.head_dim + 2);
    join_group(number, n_shared_ranges(item, table));
  }

  // Ranges of blocks that forks have, too, all of which all rows see.
  std::int64_t n_shared_ranges(const AttentionItem& item, const TableRef& table) const {
    const std::int64_t block_size = args_.shape.block_size;
    if (table.n_shared == 0 || table.n_sink > 0 || table.n_hidden > 0) return 0;
    const std::int64_t first = item.q_positions.front();
    const std::int64_t last = item.q_positions.back();
    std::int64_t n = std::min(table.n_ranges - 1, table.n_shared * block_size / table.range_keys);
    while (n > 0 && end_of_range(table, n - 1, block_size) > table.n_shared) --n;
    const std::int64_t end =
        table.first_position + (n == 0 ? 0 : end_of_range(table, n - 1, block_size)) * block_size;
    const auto recent = std::min(item.mask.recent, kMostDistance);
    const bool sees_all =
        end - 1 <= first && (end <= item.mask.sink || last - table.first_position < recent);
    return sees_all ? n : 0;
  }

  void join_group(std::int64_t number, std::int64_t n_shared) {
    if (n_shared == 0) return;
    const auto index = static_cast<std::size_t>(number);
    own_begin_[index] = n_shared;
    std::vector<std::size_t>& candidates = groups_at_[out_.tables[index].shared];
    const auto found = std::ranges::find_if(candidates, [&](std::size_t group) {
      return may_share(static_cast<std::size_t>(groups_[group].front()), index);
    });
    if (found != candidates.end()) {
      groups_[*found].push_back(number);
      return;
    }
    candidates.push_back(groups_.size());
    groups_.push_back({number});
  }

  bool may_share(std::size_t a, std::size_t b) const {
    const AttentionItemRef& item_a = out_.items[a];
    const AttentionItemRef& item_b = out_.items[b];
    const TableRef& table_a = out_.tables[a];
    const TableRef& table_b = out_.tables[b];
    return item_a.n_rows == item_b.n_rows && item_a.sink == item_b.sink &&
           item_a.recent == item_b.recent && own_begin_[a] == own_begin_[b] &&
           table_a.first_position == table_b.first_position &&
           table_a.range_keys == table_b.range_keys;
  }

  void add_shared(std::span<const std::int64_t> group) {
    const auto first = static_cast<std::size_t>(group.front());
    const Extent ranges = {0, own_begin_[first]};
    const auto most_rows = std::int64_t{kernels_.wide_decode ? kWideDecodeRows : kDecodeRows};
    const auto n_together = static_cast<std::size_t>(most_rows / out_.items[first].n_rows);
    for (std::size_t i = 0; i < group.size(); i += n_together)
      add_task(group.subspan(i, std::min(n_together, group.size() - i)), ranges);
  }

  void add_task(std::span<const std::int64_t> items, Extent ranges) {
    const std::int64_t member_rows = out_.items[static_cast<std::size_t>(items.front())].n_rows;
    const auto n_rows = member_rows * static_cast<std::int64_t>(items.size());
    (n_rows > kDecodeRows ? out_.wide_decode : out_.decode)
        .push_back({.first_member = static_cast<std::int32_t>(out_.members.size()),
                    .member_rows = static_cast<std::int32_t>(member_rows),
                    .first_row = 0,
                    .n_rows = static_cast<std::int32_t>(n_rows),
                    .first_block = ranges.begin,
                    .n_blocks = ranges.size()});
    for (const std::int64_t item : items)
      out_.members.push_back({partial_at_[static_cast<std::size_t>(item)], item});
  }

  const AttentionArgs& args_;
  AttentionKernels kernels_;
  TableSchedule out_;
  std::int64_t positions_at_ = 0;
  std::vector<std::int64_t> partial_at_;  // of each item, or -1
  std::vector<std::int64_t> own_begin_;   // of each item: its first range that is not shared
  std::vector<std::vector<std::int64_t>> groups_;  // of items that share ranges
  std::unordered_map<const void*, std::vector<std::size_t>> groups_at_;  // by what is shared
};

}  // namespace

bool goes_by_table(const KvBlockShape& shape, AttentionKernels kernels, const AttentionItem& item) {
  if (!kernels.mma || !item.table || item.table->n_tokens <= 0) return false;
  const std::int64_t n_rows = item.q.dim(0) * item.q.dim(1);
  if (n_rows == 0 || n_rows > kDecodeRows) return false;
  const SeenNumbers seen = seen_numbers(shape.block_size, item);
  const Extent& gone = item.table->gone;
  return gone.empty() || (seen.n_sink <= gone.begin && gone.end <= seen.recent.begin);
}

TableSchedule make_table_schedule(const AttentionArgs& args, AttentionKernels kernels) {
  return Scheduler(args, kernels).schedule();
}

}  // namespace longhaul::cuda
