// Cuts attention into tasks (query tile x range of blocks), runs them on all threads and merges the
// ranges. How an item is cut depends on the item alone, so its result depends neither on the number
// of threads nor on the other items.
#include "kernels/attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/bf16_pairs.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/kv_block_check.h"
#include "kernels/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

// Positions stay below this, so that differences and sums of two never overflow.
constexpr std::int64_t kMostPosition = std::int64_t{1} << 61;
// A range of keys is at least this long: merging a partial state costs about as much as 16 keys.
constexpr std::int64_t kMinSplitKeys = 2048;
// An item of few queries is cut until it gives about this many tasks: enough for the cores of one
// rank.
constexpr std::int64_t kTasksOfItem = 64;
// Tasks of fewer rows wait for memory whatever multiplies them.
constexpr std::int64_t kAmxRows = 16;

void check_blocks(const KvBlockShape& shape, const AttentionItem& item, std::string_view op) {
  for (std::size_t b = 0; b < item.blocks.size(); ++b) {
    const KvBlockRef& block = item.blocks[b];
    if (block.data == nullptr || block.first_position < 0 || block.n_tokens < 0 ||
        block.first_position > kMostPosition || block.n_tokens > shape.block_size) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: block {} has {} tokens from position {}{}; a block holds up to {}", op,
                      b, block.n_tokens, block.first_position,
                      block.data == nullptr ? " and no data" : "", shape.block_size));
    }
  }
}

void check_item(const KvBlockShape& shape, const AttentionItem& item, std::string_view op) {
  const std::int64_t q_len = item.q.dim(0);
  require_equal(op, "head_dim of q", item.q.dim(2), shape.head_dim);
  require_equal(op, "size of q_positions", static_cast<std::int64_t>(item.q_positions.size()),
                q_len);
  constexpr std::string_view kNames[] = {"q_len of the state", "gqa_group of the state",
                                         "head_dim of the state"};
  for (int i = 0; i < 3; ++i) require_equal(op, kNames[i], item.state.o.dim(i), item.q.dim(i));
  for (int i = 0; i < 2; ++i) {
    require_equal(op, kNames[i], item.state.m.dim(i), item.q.dim(i));
    require_equal(op, kNames[i], item.state.l.dim(i), item.q.dim(i));
  }
  std::int64_t before = 0;
  for (const std::int64_t position : item.q_positions) {
    if (position < before || position > kMostPosition) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: query position {} after {}; they must ascend from 0", op,
                              position, before));
    }
    before = position;
  }
  if (item.mask.sink < 0 || item.mask.recent < 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: mask of sink {} and recent {}", op,
                                                         item.mask.sink, item.mask.recent));
  }
  check_blocks(shape, item, op);
}

void check(const AttentionArgs& args) {
  check_kv_block_shape("attention", args.shape);
  require(args.sm_scale > 0.0F && args.sm_scale < 1e30F,
          fmt::format("attention: sm_scale is {}, must be positive", args.sm_scale));
  for (std::size_t i = 0; i < args.items.size(); ++i) {
    check_item(args.shape, args.items[i], fmt::format("attention: item {}", i));
  }
}

// Queries of an item that one task takes: tokens x heads of the GQA group.
struct QueryTile {
  Extent tokens;
  Extent heads;
};

std::vector<QueryTile> query_tiles(std::int64_t q_len, std::int64_t gqa_group) {
  const std::int64_t n_heads = std::min(gqa_group, cpu::kAttentionTileRows);
  const std::int64_t n_tokens = cpu::kAttentionTileRows / n_heads;
  std::vector<QueryTile> out;
  for (std::int64_t token = 0; token < q_len; token += n_tokens) {
    for (std::int64_t head = 0; head < gqa_group; head += n_heads) {
      out.push_back({{token, std::min(q_len, token + n_tokens)},
                     {head, std::min(gqa_group, head + n_heads)}});
    }
  }
  return out;
}

// Block ranges of nearly equal numbers of tokens.
std::vector<Extent> block_ranges(std::span<const KvBlockRef> blocks, std::int64_t n_tiles) {
  std::int64_t n_keys = 0;
  for (const KvBlockRef& block : blocks) n_keys += block.n_tokens;
  const std::int64_t n_ranges = std::clamp<std::int64_t>(
      std::min(n_keys / kMinSplitKeys, kTasksOfItem / n_tiles), 1, kTasksOfItem);
  std::vector<Extent> out;
  Extent range;
  std::int64_t seen = 0;
  for (const KvBlockRef& block : blocks) {
    seen += block.n_tokens;
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

SoftmaxStateView tile_of(const SoftmaxStateView& state, const QueryTile& tile) {
  return state.tokens(tile.tokens).heads(tile.heads);
}

cpu::AttentionTask make_task(const AttentionArgs& args, const AttentionItem& item,
                             const QueryTile& tile, Extent blocks) {
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
          .blocks = item.blocks.data() + blocks.begin,
          .n_blocks = blocks.size(),
          .mask_sink = std::min(item.mask.sink, 2 * kMostPosition),
          .mask_recent = std::min(item.mask.recent, 2 * kMostPosition),
          .head_dim = args.shape.head_dim,
          .block_size = args.shape.block_size,
          .k_type = args.shape.k_type,
          .v_type = args.shape.v_type,
          .v_lanes = kv_lanes(args.shape.v_type),
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
          .starts_empty = false,
          .scratch = nullptr};
}

// The partial states of one tile's block ranges, and where they are merged into.
struct SplitTile {
  SoftmaxStateView into;
  std::int64_t first_float = 0;  // of its partial states in the scratch memory
  std::int64_t n_ranges = 0;
};

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

struct Schedule {
  std::vector<cpu::AttentionTask> tasks;
  std::vector<SplitTile> splits;
  // Of each task: the number of its split and range; -1 where it adds to the item's state itself.
  std::vector<std::pair<std::int64_t, std::int64_t>> split_of;
  std::int64_t n_partial_floats = 0;
};

void add_item(const AttentionArgs& args, const AttentionItem& item, Schedule& schedule) {
  if (item.q.size() == 0 || item.blocks.empty()) return;
  const std::vector<QueryTile> tiles = query_tiles(item.q.dim(0), item.q.dim(1));
  const std::vector<Extent> ranges =
      block_ranges(item.blocks, static_cast<std::int64_t>(tiles.size()));
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

void redirect(cpu::AttentionTask& task, const SoftmaxStateView& state) {
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

bool amx_takes(const KvBlockShape& shape) {
  return cpu::kernels().amx_attend != nullptr && shape.k_type != KvType::kF32 &&
         shape.v_type != KvType::kF32 && shape.head_dim % cpu::kAmxUnit == 0 &&
         shape.block_size % cpu::kAmxUnit == 0;
}

void attention_cpu(StreamRef stream, const AttentionArgs& args) {
  Schedule schedule;
  for (const AttentionItem& item : args.items) add_item(args, item, schedule);
  thread_local Scratch partial_scratch;
  float* partials = partial_scratch.floats(schedule.n_partial_floats);
  const cpu::Kernels& kernels = cpu::kernels();
  const bool has_amx = amx_takes(args.shape);
  std::size_t scratch_bytes = kernels.attend_scratch_bytes(args.shape.head_dim);
  if (has_amx) {
    scratch_bytes = std::max(scratch_bytes, kernels.amx_attend_scratch_bytes(args.shape.head_dim));
  }
  parallel_for(static_cast<std::int64_t>(schedule.tasks.size()), [&](std::int64_t i) {
    thread_local Scratch scratch;
    cpu::AttentionTask task = schedule.tasks[static_cast<std::size_t>(i)];
    const auto [split, range] = schedule.split_of[static_cast<std::size_t>(i)];
    if (split >= 0) {
      redirect(task,
               partial_state(schedule.splits[static_cast<std::size_t>(split)], range, partials));
    }
    task.scratch = scratch.bytes(scratch_bytes);
    const bool by_amx = has_amx && task.n_tokens * task.n_heads >= kAmxRows;
    (by_amx ? kernels.amx_attend : kernels.attend)(task);
  });
  for (const SplitTile& split : schedule.splits) {
    for (std::int64_t range = 0; range < split.n_ranges; ++range) {
      merge(stream, split.into, partial_state(split, range, partials));
    }
  }
}

}  // namespace

void attention(StreamRef stream, const AttentionArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return attention_cpu(stream, args);
    case Device::kCuda:
      return cuda::attention(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
