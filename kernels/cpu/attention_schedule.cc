#include "kernels/cpu/attention_schedule.h"

#include <algorithm>

#include "kernels/cpu/bf16_pairs.h"

namespace longhaul::cpu {
namespace {

// A range of keys is at least this long: merging a partial state costs about as much as 16 keys.
constexpr std::int64_t kMinSplitKeys = 2048;
// An item of few queries is cut until it gives about this many tasks: enough for the cores of one
// rank.
constexpr std::int64_t kTasksOfItem = 64;

// Queries of an item that one task takes: tokens x heads of the GQA group.
struct QueryTile {
  Extent tokens;
  Extent heads;
};

std::vector<QueryTile> query_tiles(Extent queries, std::int64_t gqa_group) {
  const std::int64_t n_heads = std::min(gqa_group, kAttentionTileRows);
  const std::int64_t n_tokens = kAttentionTileRows / n_heads;
  std::vector<QueryTile> out;
  for (std::int64_t token = queries.begin; token < queries.end; token += n_tokens) {
    for (std::int64_t head = 0; head < gqa_group; head += n_heads) {
      out.push_back({{token, std::min(queries.end, token + n_tokens)},
                     {head, std::min(gqa_group, head + n_heads)}});
    }
  }
  return out;
}

std::int64_t sinks_of(const AttentionItem& item) {
  return std::min(item.mask.sink, 2 * kMostAttentionPosition);
}

std::int64_t recent_of(const AttentionItem& item) {
  return std::min(item.mask.recent, 2 * kMostAttentionPosition);
}

// How many of the block's keys any of the queries sees.
std::int64_t n_seen(const AttentionItem& item, Extent queries, const KvBlockRef& block) {
  const auto slot_of = [&](std::int64_t position) { return position - block.first_position; };
  const std::int64_t first = item.q_positions[static_cast<std::size_t>(queries.begin)];
  const std::int64_t last = item.q_positions[static_cast<std::size_t>(queries.end - 1)];
  const std::int64_t end = std::clamp<std::int64_t>(slot_of(last) + 1, 0, block.n_tokens);
  const std::int64_t sinks = std::clamp<std::int64_t>(slot_of(sinks_of(item)), 0, end);
  return sinks + end - std::clamp(slot_of(first) + 1 - recent_of(item), sinks, end);
}

// Block ranges in which the queries see nearly equal numbers of keys.
std::vector<Extent> block_ranges(const AttentionItem& item, Extent queries, std::int64_t n_tiles) {
  std::int64_t n_keys = 0;
  for (const KvBlockRef& block : item.blocks) n_keys += n_seen(item, queries, block);
  const std::int64_t n_ranges = std::clamp<std::int64_t>(
      std::min(n_keys / kMinSplitKeys, kTasksOfItem / n_tiles), 1, kTasksOfItem);
  std::vector<Extent> out;
  Extent range;
  std::int64_t seen = 0;
  for (const KvBlockRef& block : item.blocks) {
    seen += n_seen(item, queries, block);
    ++range.end;
    const auto n_done = static_cast<std::int64_t>(out.size());
    if (n_done + 1 < n_ranges && seen >= (n_done + 1) * n_keys / n_ranges) {
      out.push_back(range);
      range.begin = range.end;
    }
  }
  if (!range.empty()) out.push_back(range);
  return out;
}

// So many rows, on a machine that multiplies fast, wait for memory rather than compute.
std::int64_t most_waiting_rows(KvType type) {
  switch (type) {
    case KvType::kF32:
    case KvType::kBf16:
      return 8;
    case KvType::kInt8:
      return 4;
    default:
      return 0;
  }
}

bool reads_in_order(const AttentionArgs& args, std::int64_t n_rows) {
  const std::int64_t most =
      std::min(most_waiting_rows(args.shape.k_type), most_waiting_rows(args.shape.v_type));
  return args.order == SumOrder::kFastest ? n_rows <= most
                                          : args.order == SumOrder::kOfFewRows && most > 0;
}

SoftmaxStateView tile_of(const SoftmaxStateView& state, const QueryTile& tile) {
  return state.tokens(tile.tokens).heads(tile.heads);
}

AttentionTask make_task(const AttentionArgs& args, const AttentionItem& item, const QueryTile& tile,
                        Extent blocks) {
  const auto q = item.q.slice(0, tile.tokens).slice(1, tile.heads);
  const SoftmaxStateView state = tile_of(item.state, tile);
  const KvPartLayout k = args.shape.part(args.shape.k_type);
  const KvPartLayout v = args.shape.part(args.shape.v_type);
  return {.q = q.data(),
          .q_token_stride = q.stride(0),
          .q_head_stride = q.stride(1),
          .q_positions = item.q_positions.data() + tile.tokens.begin,
          .n_tokens = tile.tokens.size(),
          .n_heads = tile.heads.size(),
          .first_head = tile.heads.begin,
          .blocks = item.blocks.data() + blocks.begin,
          .n_blocks = blocks.size(),
          .n_blocks_ahead = static_cast<std::int64_t>(item.blocks.size()) - blocks.end,
          .mask_sink = sinks_of(item),
          .mask_recent = recent_of(item),
          .head_dim = args.shape.head_dim,
          .block_size = args.shape.block_size,
          .k_type = args.shape.k_type,
          .v_type = args.shape.v_type,
          .v_lanes = kv_lanes(args.shape.v_type),
          .block_bytes = args.shape.bytes(),
          .k_scales_at = k.scales_at(),
          .k_minima_at = k.minima_at(),
          .v_at = k.bytes,
          .v_scales_at = k.bytes + v.scales_at(),
          .v_minima_at = k.bytes + v.minima_at(),
          .multiplies_bf16_pairs = bf16_pairs(),
          .sm_scale = args.sm_scale,
          .o = state.o.data(),
          .o_token_stride = state.o.stride(0),
          .o_head_stride = state.o.stride(1),
          .m = state.m.data(),
          .m_token_stride = state.m.stride(0),
          .m_head_stride = state.m.stride(1),
          .l = state.l.data(),
          .l_token_stride = state.l.stride(0),
          .l_head_stride = state.l.stride(1),
          .rows_apart = args.order == SumOrder::kOfManyRows,
          .reads_in_order = reads_in_order(args, tile.tokens.size() * tile.heads.size()),
          .starts_empty = false,
          .scratch = nullptr};
}

void add_queries(const AttentionArgs& args, const AttentionItem& item, Extent queries,
                 AttentionSchedule& schedule) {
  const std::vector<QueryTile> tiles = query_tiles(queries, item.q.dim(1));
  const auto n_tiles = static_cast<std::int64_t>(tiles.size());
  std::vector<Extent> ranges = {{0, static_cast<std::int64_t>(item.blocks.size())}};
  // Where they are cut depends on all queries, but a sum of many rows on its own one alone.
  if (args.order != SumOrder::kOfManyRows) ranges = block_ranges(item, queries, n_tiles);
  // The last queries see the most keys: longest tasks first.
  for (auto tile = tiles.rbegin(); tile != tiles.rend(); ++tile) {
    if (ranges.size() == 1) {
      schedule.tasks.push_back(make_task(args, item, *tile, ranges[0]));
      schedule.split_of.emplace_back(-1, 0);
      continue;
    }
    const SplitTile split = {.into = tile_of(item.state, *tile),
                             .first_float = schedule.n_partial_floats,
                             .n_ranges = static_cast<std::int64_t>(ranges.size())};
    for (std::size_t range = 0; range < ranges.size(); ++range) {
      schedule.tasks.push_back(make_task(args, item, *tile, ranges[range]));
      schedule.split_of.emplace_back(schedule.splits.size(), range);
    }
    schedule.n_partial_floats +=
        split.n_ranges * tile->tokens.size() * tile->heads.size() * (args.shape.head_dim + 2);
    schedule.splits.push_back(split);
  }
}

void add_item(const AttentionArgs& args, const AttentionItem& item, AttentionSchedule& schedule) {
  if (item.q.size() == 0 || item.blocks.empty()) return;
  const Extent all{0, item.q.dim(0)};
  if (args.order != SumOrder::kOfFewRows) return add_queries(args, item, all, schedule);
  // A query beside others, say of guesses, is computed as it would be alone.
  for (std::int64_t query = all.end - 1; query >= 0; --query) {
    add_queries(args, item, {query, query + 1}, schedule);
  }
}

}  // namespace

AttentionSchedule schedule_attention(const AttentionArgs& args) {
  AttentionSchedule schedule;
  for (const AttentionItem& item : args.items) add_item(args, item, schedule);
  return schedule;
}

SoftmaxStateView partial_state(const SplitTile& split, std::int64_t range, float* partials) {
  const std::int64_t n_tokens = split.into.o.dim(0);
  const std::int64_t n_heads = split.into.o.dim(1);
  const std::int64_t head_dim = split.into.o.dim(2);
  const std::int64_t n_rows = n_tokens * n_heads;
  float* o = partials + split.first_float + range * n_rows * (head_dim + 2);
  float* m = o + n_rows * head_dim;
  return {TensorView<float, 3>(o, {n_tokens, n_heads, head_dim}),
          TensorView<float, 2>(m, {n_tokens, n_heads}),
          TensorView<float, 2>(m + n_rows, {n_tokens, n_heads})};
}

void redirect(AttentionTask& task, const SoftmaxStateView& state) {
  task.o = state.o.data();
  task.o_token_stride = state.o.stride(0);
  task.o_head_stride = state.o.stride(1);
  task.m = state.m.data();
  task.m_token_stride = state.m.stride(0);
  task.m_head_stride = state.m.stride(1);
  task.l = state.l.data();
  task.l_token_stride = state.l.stride(0);
  task.l_head_stride = state.l.stride(1);
  task.starts_empty = true;
}

}  // namespace longhaul::cpu
