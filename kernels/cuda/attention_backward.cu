// attention_backward: three passes over tiles of 32 rows and 32 keys, in float32. A row is a query
// of one head; the heads of a group, which share keys, lie side by side in a tile.
//
//   outputs_kernel   a tile of rows against all keys that it sees: o, and of each row the log of
//                    its softmax' denominator, and sum(o d_o)
//   keys_kernel      a tile of keys against all rows that see it: d_k and d_v. What sinks get comes
//                    from the whole text: such tiles are cut into runs of queries, whose shares
//                    add_kernel adds in their order. So there are no atomics, and every sum has one
//                    order.
//   queries_kernel   tiles of rows once more, for d_q; last, since d_q may lie where d_o does
//
// A query sees keys by their index: sinks [0, sink_end) and [begin, end), which the host finds.
// Positions ascend, so all three do, and what a tile sees are two runs of keys, whatever the text's
// length: the work is bounded by sinks and window.
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/attention_backward_plan.h"
#include "kernels/cuda/parcel.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr float kInfinity = __builtin_huge_valf();

__device__ __forceinline__ bool sees(const Seen& seen, std::int64_t key) {
  return key < seen.sink_end || (seen.begin <= key && key < seen.end);
}

struct BackwardWork {
  const float* q;  // [n_queries, n_heads, head_dim]
  const float* k;  // [n_keys, n_kv_heads, head_dim]
  const float* v;
  const float* d_o;
  float* o;
  float* d_q;  // may be d_o
  float* d_k;
  float* d_v;
  const float* sink_logits;  // [n_heads] or null
  const Seen* seen;          // [n_queries]
  const KeyTask* tasks;
  const KeyShares* shares;
  float* log_sums;          // [n_queries, n_heads]; infinity where a row sees nothing
  float* products;          // [n_queries, n_heads], sum(o d_o)
  float* partials;          // [shares of all KV heads, 2, kBackwardTile, head_dim]: d_k, d_v
  std::int64_t n_partials;  // of each KV head
  std::int64_t n_queries;
  std::int64_t n_keys;
  std::int64_t n_kv_heads;
  std::int64_t gqa_group;
  std::int64_t head_dim;
  float sm_scale;
  bool operator==(const BackwardWork&) const = default;

  // Of a row of a KV head, counted over queries and the heads of its group.
  __device__ std::int64_t head_row(std::int64_t kv_head, std::int64_t row) const {
    return (row / gqa_group * n_kv_heads + kv_head) * gqa_group + row % gqa_group;
  }
  __device__ std::int64_t key_at(std::int64_t kv_head, std::int64_t key) const {
    return (key * n_kv_heads + kv_head) * head_dim;
  }
  // [2, kBackwardTile, head_dim]
  __device__ float* partial_at(std::int64_t kv_head, std::int64_t partial) const {
    return partials + (kv_head * n_partials + partial) * 2 * kBackwardTile * head_dim;
  }
};

// The tiles of keys that a run of queries sees: its sinks before its window, then its window.
struct KeyTiles {
  std::int64_t n_sinks;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t n_sink_tiles;
  std::int64_t n;

  __device__ KeyTiles(const Seen& first, const Seen& last)
      : n_sinks(last.sink_end < first.begin ? last.sink_end : first.begin),
        begin(first.begin),
        end(last.end),
        n_sink_tiles((n_sinks + kBackwardTile - 1) / kBackwardTile),
        n(n_sink_tiles + (end - begin + kBackwardTile - 1) / kBackwardTile) {}
  __device__ std::int64_t first_key(std::int64_t tile) const {
    return tile < n_sink_tiles ? tile * kBackwardTile
                               : begin + (tile - n_sink_tiles) * kBackwardTile;
  }
  __device__ int n_keys(std::int64_t tile) const {
    const std::int64_t left = (tile < n_sink_tiles ? n_sinks : end) - first_key(tile);
    return static_cast<int>(left < kBackwardTile ? left : kBackwardTile);
  }
  // Of what a query sees, the keys of this tile: one of sinks may reach into the window.
  __device__ Seen seen(std::int64_t tile, const Seen& all) const {
    if (tile >= n_sink_tiles) return all;
    return {all.sink_end < n_sinks ? all.sink_end : n_sinks, 0, 0};
  }
};

// The rows of a thread block: blockIdx.x counts tiles of them, blockIdx.y KV heads.
struct RowTile {
  std::int64_t kv_head;
  std::int64_t first_row;
  int n_rows;

  __device__ explicit RowTile(const BackwardWork& work)
      : kv_head(blockIdx.y), first_row(static_cast<std::int64_t>(blockIdx.x) * kBackwardTile) {
    const std::int64_t n_left = work.n_queries * work.gqa_group - first_row;
    n_rows = static_cast<int>(n_left < kBackwardTile ? n_left : kBackwardTile);
  }
  __device__ KeyTiles keys(const BackwardWork& work) const {
    return {work.seen[first_row / work.gqa_group],
            work.seen[(first_row + n_rows - 1) / work.gqa_group]};
  }
};

// Two rows of a thread.
struct Rows {
  Seen seen[2];
  std::int64_t at[2];  // head_row
  bool exists[2];
};
__device__ __forceinline__ Rows rows_of_thread(const BackwardWork& work, std::int64_t kv_head,
                                               std::int64_t first_row, int n_rows) {
  Rows rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * tile_place().pair + i;
    rows.exists[i] = row < n_rows;
    rows.at[i] = 0;
    rows.seen[i] = {0, 0, 0};
    if (!rows.exists[i]) continue;
    rows.at[i] = work.head_row(kv_head, first_row + row);
    rows.seen[i] = work.seen[(first_row + row) / work.gqa_group];
  }
  return rows;
}

template <int kDims32>
__device__ void load_rows(const BackwardWork& work, float* to, const float* from,
                          std::int64_t kv_head, std::int64_t first_row, int n_rows) {
  load_tile<kDims32>(to, n_rows, work.head_dim, [&](int row) {
    return from + work.head_row(kv_head, first_row + row) * work.head_dim;
  });
}
template <int kDims32>
__device__ void load_keys(const BackwardWork& work, float* to, const float* from,
                          std::int64_t kv_head, std::int64_t first_key, int n_keys) {
  load_tile<kDims32>(to, n_keys, work.head_dim,
                     [&](int key) { return from + work.key_at(kv_head, first_key + key); });
}

// Softmax weights of two rows and four keys from their scores.
__device__ __forceinline__ float weight_of_score(const BackwardWork& work, const Seen& seen,
                                                 std::int64_t key, float score, float log_sum) {
  return sees(seen, key) ? expf(score * work.sm_scale - log_sum) : 0.0F;
}

// --- rows: outputs ------------------------------------------------------------------------------

// The running softmax of a thread's two rows; with their sink logits, where there are any.
struct Running {
  float m[2];
  float l[2];
};

// Scores become weights beside the maximum so far, in `weights`; what was summed before is scaled.
template <int kDims32>
__device__ void take_scores(const BackwardWork& work, const Seen (&seen)[2], std::int64_t first_key,
                            const float (&scores)[2][4], Running& running, TileSums<kDims32>& sums,
                            float* weights) {
  const TilePlace place = tile_place();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float best = -kInfinity;
    for (int j = 0; j < 4; ++j) {
      if (!sees(seen[i], first_key + place.other + 8 * j)) continue;
      const float score = scores[i][j] * work.sm_scale;
      best = score > best ? score : best;
    }
    best = reduce_eight(best, Larger());
    const float m = best > running.m[i] ? best : running.m[i];
    const float reference = m == -kInfinity ? 0.0F : m;
    const float factor = running.m[i] == -kInfinity ? 0.0F : expf(running.m[i] - reference);
    float sum = 0.0F;
    for (int j = 0; j < 4; ++j) {
      const int key = place.other + 8 * j;
      const float p = weight_of_score(work, seen[i], first_key + key, scores[i][j], reference);
      weights[(2 * place.pair + i) * kScoreStride + key] = p;
      sum += p;
    }
    running.l[i] = running.l[i] * factor + reduce_eight(sum, Add());
    running.m[i] = m;
    sums.scale(i, factor);
  }
}

// grid.x: tiles of rows, grid.y: KV heads. Shared: q, k, v, weights.
template <int kDims32>
__global__ void __launch_bounds__(kBackwardThreads) outputs_kernel(BackwardWork work) {
  constexpr int kFloats = TileShape<kDims32>::kFloats;
  auto* q = reinterpret_cast<float*>(shared_memory());
  float* k = q + kFloats;
  float* v = k + kFloats;
  float* weights = v + kFloats;
  const RowTile row_tile(work);
  load_rows<kDims32>(work, q, work.q, row_tile.kv_head, row_tile.first_row, row_tile.n_rows);
  const Rows rows = rows_of_thread(work, row_tile.kv_head, row_tile.first_row, row_tile.n_rows);
  const KeyTiles tiles = row_tile.keys(work);
  TileSums<kDims32> sums;
  sums.clear();
  Running running = {{-kInfinity, -kInfinity}, {0.0F, 0.0F}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (work.sink_logits == nullptr || !rows.exists[i]) continue;
    running.m[i] = work.sink_logits[rows.at[i] % (work.n_kv_heads * work.gqa_group)];
    running.l[i] = 1.0F;
  }
  for (std::int64_t tile = 0; tile < tiles.n; ++tile) {
    const std::int64_t first_key = tiles.first_key(tile);
    __syncthreads();  // the tile before has been read
    load_keys<kDims32>(work, k, work.k, row_tile.kv_head, first_key, tiles.n_keys(tile));
    load_keys<kDims32>(work, v, work.v, row_tile.kv_head, first_key, tiles.n_keys(tile));
    __syncthreads();  // this one is written
    float scores[2][4];
    tile_products<kDims32>(q, k, scores);
    take_scores(work, {tiles.seen(tile, rows.seen[0]), tiles.seen(tile, rows.seen[1])}, first_key,
                scores, running, sums, weights);
    sync_warp();  // a row's weights are its own warp's
    sums.add(weights, kScoreStride, 1, v);
    sync_warp();  // they have been read before the next ones
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float factor = running.l[i] > 0.0F ? 1.0F / running.l[i] : 0.0F;
    float product = 0.0F;
    if (rows.exists[i]) {
      const std::int64_t at = rows.at[i] * work.head_dim;
      sums.store(i, work.head_dim, [&](int d, float value) {
        const float o = value * factor;
        work.o[at + d] = o;
        product += o * work.d_o[at + d];
      });
    }
    product = reduce_eight(product, Add());
    if (rows.exists[i] && tile_place().other == 0) {
      work.log_sums[rows.at[i]] =
          running.l[i] > 0.0F ? running.m[i] + logf(running.l[i]) : kInfinity;
      work.products[rows.at[i]] = product;
    }
  }
}

// --- rows: gradients of queries -----------------------------------------------------------------

// grid.x: tiles of rows, grid.y: KV heads. Shared: q, d_o, k, v, d_s.
template <int kDims32>
__global__ void __launch_bounds__(kBackwardThreads) queries_kernel(BackwardWork work) {
  constexpr int kFloats = TileShape<kDims32>::kFloats;
  auto* q = reinterpret_cast<float*>(shared_memory());
  float* d_o = q + kFloats;
  float* k = d_o + kFloats;
  float* v = k + kFloats;
  float* d_s = v + kFloats;
  const TilePlace place = tile_place();
  const RowTile row_tile(work);
  load_rows<kDims32>(work, q, work.q, row_tile.kv_head, row_tile.first_row, row_tile.n_rows);
  load_rows<kDims32>(work, d_o, work.d_o, row_tile.kv_head, row_tile.first_row, row_tile.n_rows);
  const Rows rows = rows_of_thread(work, row_tile.kv_head, row_tile.first_row, row_tile.n_rows);
  const KeyTiles tiles = row_tile.keys(work);
  float log_sums[2];
  float products[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    log_sums[i] = rows.exists[i] ? work.log_sums[rows.at[i]] : kInfinity;
    products[i] = rows.exists[i] ? work.products[rows.at[i]] : 0.0F;
  }
  TileSums<kDims32> sums;
  sums.clear();
  for (std::int64_t tile = 0; tile < tiles.n; ++tile) {
    const std::int64_t first_key = tiles.first_key(tile);
    __syncthreads();  // the tile before has been read
    load_keys<kDims32>(work, k, work.k, row_tile.kv_head, first_key, tiles.n_keys(tile));
    load_keys<kDims32>(work, v, work.v, row_tile.kv_head, first_key, tiles.n_keys(tile));
    __syncthreads();  // this one is written
    float scores[2][4];
    float d_p[2][4];
    tile_products<kDims32>(q, k, scores);
    tile_products<kDims32>(d_o, v, d_p);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Seen seen = tiles.seen(tile, rows.seen[i]);
      for (int j = 0; j < 4; ++j) {
        const int key = place.other + 8 * j;
        const float p = weight_of_score(work, seen, first_key + key, scores[i][j], log_sums[i]);
        d_s[(2 * place.pair + i) * kScoreStride + key] =
            p * (d_p[i][j] - products[i]) * work.sm_scale;
      }
    }
    sync_warp();  // a row's d_s is its own warp's
    sums.add(d_s, kScoreStride, 1, k);
    sync_warp();  // it has been read before the next one
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    float* to = work.d_q + rows.at[i] * work.head_dim;
    sums.store(i, work.head_dim, [&](int d, float value) { to[d] = value; });
  }
}

// --- keys ---------------------------------------------------------------------------------------

// grid.x: tasks, grid.y: KV heads. Shared: k, v, q, d_o, p, d_s. Rows of sums are keys.
template <int kDims32>
__global__ void __launch_bounds__(kBackwardThreads) keys_kernel(BackwardWork work) {
  constexpr int kFloats = TileShape<kDims32>::kFloats;
  auto* k = reinterpret_cast<float*>(shared_memory());
  float* v = k + kFloats;
  float* q = v + kFloats;
  float* d_o = q + kFloats;
  float* p = d_o + kFloats;
  float* d_s = p + kBackwardTile * kScoreStride;
  const TilePlace place = tile_place();
  const std::int64_t kv_head = blockIdx.y;
  const KeyTask task = work.tasks[blockIdx.x];
  const std::int64_t first_key = task.tile * kBackwardTile;
  const std::int64_t keys_left = work.n_keys - first_key;
  const int n_keys = static_cast<int>(keys_left < kBackwardTile ? keys_left : kBackwardTile);
  load_keys<kDims32>(work, k, work.k, kv_head, first_key, n_keys);
  load_keys<kDims32>(work, v, work.v, kv_head, first_key, n_keys);
  TileSums<kDims32> d_k;
  TileSums<kDims32> d_v;
  d_k.clear();
  d_v.clear();
  const std::int64_t last_row = task.last_query * work.gqa_group;
  for (std::int64_t first_row = task.first_query * work.gqa_group; first_row < last_row;
       first_row += kBackwardTile) {
    const std::int64_t n_left = last_row - first_row;
    const int n_rows = static_cast<int>(n_left < kBackwardTile ? n_left : kBackwardTile);
    __syncthreads();  // the rows before have been read
    load_rows<kDims32>(work, q, work.q, kv_head, first_row, n_rows);
    load_rows<kDims32>(work, d_o, work.d_o, kv_head, first_row, n_rows);
    __syncthreads();  // these are written
    float scores[2][4];
    float d_p[2][4];
    tile_products<kDims32>(q, k, scores);
    tile_products<kDims32>(d_o, v, d_p);
    const Rows rows = rows_of_thread(work, kv_head, first_row, n_rows);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float log_sum = rows.exists[i] ? work.log_sums[rows.at[i]] : kInfinity;
      const float product = rows.exists[i] ? work.products[rows.at[i]] : 0.0F;
      for (int j = 0; j < 4; ++j) {
        const int key = place.other + 8 * j;
        const int at = (2 * place.pair + i) * kScoreStride + key;
        p[at] = weight_of_score(work, rows.seen[i], first_key + key, scores[i][j], log_sum);
        d_s[at] = p[at] * (d_p[i][j] - product) * work.sm_scale;
      }
    }
    __syncthreads();  // every row's p and d_s are written
    d_v.add(p, 1, kScoreStride, d_o);
    d_k.add(d_s, 1, kScoreStride, q);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int key = 2 * place.pair + i;
    if (key >= n_keys) continue;
    float* to_k = work.d_k + work.key_at(kv_head, first_key + key);
    float* to_v = work.d_v + work.key_at(kv_head, first_key + key);
    if (task.partial >= 0) {
      to_k = work.partial_at(kv_head, task.partial) + key * work.head_dim;
      to_v = to_k + kBackwardTile * work.head_dim;
    }
    d_k.store(i, work.head_dim, [&](int d, float value) { to_k[d] = value; });
    d_v.store(i, work.head_dim, [&](int d, float value) { to_v[d] = value; });
  }
}

// A tile's shares, in their order. grid.x: such tiles, grid.y: KV heads.
__global__ void add_kernel(BackwardWork work) {
  const KeyShares shares = work.shares[blockIdx.x];
  const std::int64_t kv_head = blockIdx.y;
  const std::int64_t first_key = shares.tile * kBackwardTile;
  const std::int64_t n_left = work.n_keys - first_key;
  const std::int64_t n_keys = n_left < kBackwardTile ? n_left : kBackwardTile;
  const std::int64_t n = n_keys * work.head_dim;
  for (std::int64_t i = threadIdx.x; i < n; i += kBackwardThreads) {
    const std::int64_t at = work.key_at(kv_head, first_key + i / work.head_dim) + i % work.head_dim;
    float d_k = 0.0F;
    float d_v = 0.0F;
    for (std::int64_t share = 0; share < shares.n; ++share) {
      const float* from = work.partial_at(kv_head, shares.first_partial + share);
      d_k += from[i];
      d_v += from[kBackwardTile * work.head_dim + i];
    }
    work.d_k[at] = d_k;
    work.d_v[at] = d_v;
  }
}

// --- on the host --------------------------------------------------------------------------------

template <int kDims32>
void run(Stream& stream, const BackwardWork& work, const KeyPlan& plan) {
  constexpr std::size_t kTileBytes = TileShape<kDims32>::kFloats * sizeof(float);
  constexpr std::size_t kScoreBytes = kBackwardTile * kScoreStride * sizeof(float);
  const std::int64_t n_row_tiles = ceil_div(work.n_queries * work.gqa_group, kBackwardTile);
  const auto grid = [&](std::int64_t n, std::size_t shared_bytes) {
    return Grid{
        .x = n, .y = work.n_kv_heads, .block = kBackwardThreads, .shared_bytes = shared_bytes};
  };
  launch(stream, "attention_backward: outputs", outputs_kernel<kDims32>,
         grid(n_row_tiles, 3 * kTileBytes + kScoreBytes), work);
  launch(stream, "attention_backward: keys", keys_kernel<kDims32>,
         grid(static_cast<std::int64_t>(plan.tasks.size()), 4 * kTileBytes + 2 * kScoreBytes),
         work);
  launch(stream, "attention_backward: shares", add_kernel,
         grid(static_cast<std::int64_t>(plan.shares.size()), 0), work);
  launch(stream, "attention_backward: queries", queries_kernel<kDims32>,
         grid(n_row_tiles, 4 * kTileBytes + kScoreBytes), work);
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  const std::int64_t head_dim = args.q.dim(2);
  if (head_dim > kMostBackwardGpuDims) {
    throw Error(ErrorCode::kUnsupported, "attention_backward on CUDA: only head_dim up to " +
                                             std::to_string(kMostBackwardGpuDims) +
                                             "; run on the CPU");
  }
  const std::int64_t n_kv_heads = args.k.dim(1);
  const std::int64_t gqa_group = args.q.dim(1) / n_kv_heads;
  const std::vector<Seen> seen = seen_of(args);
  const KeyPlan plan = plan_keys(seen, args.k.dim(0), gqa_group);
  Parcel parcel;
  const std::size_t seen_at = parcel.add(seen);
  const std::size_t tasks_at = parcel.add(plan.tasks);
  const std::size_t shares_at = parcel.add(plan.shares);
  const std::byte* base = stream.upload(parcel.bytes());
  const std::int64_t n_rows = args.q.dim(0) * args.q.dim(1);
  const std::int64_t n_partial_floats = plan.n_partials * n_kv_heads * 2 * kBackwardTile * head_dim;
  auto* scratch = reinterpret_cast<float*>(
      stream.scratch(static_cast<std::size_t>(2 * n_rows + n_partial_floats) * sizeof(float)));
  const BackwardWork work = {
      .q = args.q.data(),
      .k = args.k.data(),
      .v = args.v.data(),
      .d_o = args.d_o.data(),
      .o = args.o.data(),
      .d_q = args.d_q.data(),
      .d_k = args.d_k.data(),
      .d_v = args.d_v.data(),
      .sink_logits = args.sink_logits.empty() ? nullptr : args.sink_logits.data(),
      .seen = part<Seen>(base, seen_at),
      .tasks = part<KeyTask>(base, tasks_at),
      .shares = part<KeyShares>(base, shares_at),
      .log_sums = scratch,
      .products = scratch + n_rows,
      .partials = scratch + 2 * n_rows,
      .n_partials = plan.n_partials,
      .n_queries = args.q.dim(0),
      .n_keys = args.k.dim(0),
      .n_kv_heads = n_kv_heads,
      .gqa_group = gqa_group,
      .head_dim = head_dim,
      .sm_scale = args.sm_scale};
  if (head_dim <= 32) return run<1>(stream, work, plan);
  if (head_dim <= 64) return run<2>(stream, work, plan);
  if (head_dim <= 128) return run<4>(stream, work, plan);
  run<8>(stream, work, plan);
}

}  // namespace longhaul::cuda
