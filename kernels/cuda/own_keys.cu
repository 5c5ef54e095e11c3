// add_own_keys: a thread block for each row and KV head rounds the token's key and value as a cache
// would give them back; then a warp adds them to a query head's state.
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softmax_state.cuh"
#include "kernels/cuda/state_ref.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kWarps = kChoiceThreads / kWarp;

// Rows and heads of a tensor [n, n_heads, head_dim].
struct Heads {
  const float* x;
  std::int64_t row_stride;
  std::int64_t head_stride;
  bool operator==(const Heads&) const = default;
  __device__ const float* at(std::int64_t row, std::int64_t head) const {
    return x + row * row_stride + head * head_stride;
  }
};
Heads heads_of(const TensorView<const float, 3>& x) { return {x.data(), x.stride(0), x.stride(1)}; }

struct OwnKeys {
  Heads q;
  Heads k;
  Heads v;
  StateRef state;
  std::int64_t group;
  std::int64_t head_dim;
  KvType k_type;
  KvType v_type;
  float sm_scale;
  bool operator==(const OwnKeys&) const = default;
};

// By one warp: x [head_dim] as a cache of this type gives it back.
__device__ void round_as_cached(KvType type, const float* x, std::int64_t head_dim, float* out) {
  const CodeRange range = holds_codes(type) ? range_of(type, x, head_dim) : CodeRange{0, 0, false};
  for (auto d = static_cast<std::int64_t>(threadIdx.x % kWarp); d < head_dim; d += kWarp) {
    if (type == KvType::kF32) {
      out[d] = x[d];
    } else if (type == KvType::kBf16) {
      out[d] = __uint_as_float(bf16_pair(x[d], 0.0F) << 16U);
    } else {
      out[d] = value_of_code(type, code_of(type, x[d], range), float_of_f16(range.scale),
                             float_of_f16(range.minimum));
    }
  }
}

// By one warp: a key with this logit into one head's state.
__device__ void add_key(const StateRef& state, std::int64_t row, std::int64_t head, float logit,
                        const float* value, std::int64_t head_dim) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  float* m = state.m_at(row, head);
  float* l = state.l_at(row, head);
  float* o = state.o_at(row, head);
  const Merged both = merged(*m, *l, logit, 1.0F);
  for (std::int64_t d = lane; d < head_dim; d += kWarp)
    o[d] = o[d] * both.weight_a + both.weight_b * value[d];
  sync_warp();  // all lanes have read m and l before they are written
  if (lane == 0) *m = both.m;
  if (lane == 1) *l = both.l;
}

// grid.x is the row, grid.y the KV head. Shared: key, value [head_dim].
__global__ void own_keys_kernel(OwnKeys work) {
  auto* key = reinterpret_cast<float*>(shared_memory());
  float* value = key + work.head_dim;
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const auto kv_head = static_cast<std::int64_t>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp == 0) round_as_cached(work.k_type, work.k.at(row, kv_head), work.head_dim, key);
  if (warp == 1) round_as_cached(work.v_type, work.v.at(row, kv_head), work.head_dim, value);
  __syncthreads();  // key and value are written before all warps read them
  for (std::int64_t g = warp; g < work.group; g += kWarps) {
    const std::int64_t head = kv_head * work.group + g;
    const float* q = work.q.at(row, head);
    double product = 0.0;
    for (auto d = static_cast<std::int64_t>(threadIdx.x % kWarp); d < work.head_dim; d += kWarp)
      product += static_cast<double>(q[d]) * static_cast<double>(key[d]);
    product = reduce_warp(product, Add());
    add_key(work.state, row, head, work.sm_scale * static_cast<float>(product), value,
            work.head_dim);
  }
}

}  // namespace

void add_own_keys(Stream& stream, const OwnKeysArgs& args) {
  const OwnKeys work = {.q = heads_of(args.q),
                        .k = heads_of(args.k),
                        .v = heads_of(args.v),
                        .state = state_ref(args.state),
                        .group = args.q.dim(1) / args.k.dim(1),
                        .head_dim = args.shape.head_dim,
                        .k_type = args.shape.k_type,
                        .v_type = args.shape.v_type,
                        .sm_scale = args.sm_scale};
  launch(stream, "add_own_keys", own_keys_kernel,
         {.x = args.q.dim(0),
          .y = args.k.dim(1),
          .block = kChoiceThreads,
          .shared_bytes = static_cast<std::size_t>(2 * args.shape.head_dim) * sizeof(float)},
         work);
}

}  // namespace longhaul::cuda
