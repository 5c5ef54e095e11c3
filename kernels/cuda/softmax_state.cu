// clear, merge and finish_attention: a warp for each (token, head), lanes along head_dim.
#include "kernels/cuda/softmax_state.cuh"

#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

struct Rows {
  std::int64_t n_heads;
  std::int64_t head_dim;
  std::int64_t n_rows;  // n_tokens n_heads
  bool operator==(const Rows&) const = default;
};

struct Row {
  std::int64_t token;
  std::int64_t head;
  bool exists;
};

__device__ Row this_row(const Rows& rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) +
                           static_cast<std::int64_t>(threadIdx.x / kWarp);
  return {row / rows.n_heads, row % rows.n_heads, row < rows.n_rows};
}
__device__ std::int64_t this_lane() { return static_cast<std::int64_t>(threadIdx.x % kWarp); }

__global__ void clear_kernel(Rows rows, StateRef state) {
  const Row row = this_row(rows);
  if (!row.exists) return;
  float* o = state.o_at(row.token, row.head);
  for (std::int64_t d = this_lane(); d < rows.head_dim; d += kWarp) o[d] = 0.0F;
  if (this_lane() != 0) return;
  *state.m_at(row.token, row.head) = minus_infinity();
  *state.l_at(row.token, row.head) = 0.0F;
}

__global__ void merge_kernel(Rows rows, StateRef into, StateRef from) {
  const Row row = this_row(rows);
  if (!row.exists) return;
  const float from_m = *from.m_at(row.token, row.head);
  const float from_l = *from.l_at(row.token, row.head);
  if (is_empty(from_m, from_l)) return;
  float* m = into.m_at(row.token, row.head);
  float* l = into.l_at(row.token, row.head);
  const Merged both = merged(*m, *l, from_m, from_l);
  float* o = into.o_at(row.token, row.head);
  const float* from_o = from.o_at(row.token, row.head);
  for (std::int64_t d = this_lane(); d < rows.head_dim; d += kWarp) {
    o[d] = o[d] * both.weight_a + from_o[d] * both.weight_b;
  }
  sync_warp();  // all lanes have read m and l before lane 0 writes them
  if (this_lane() != 0) return;
  *m = both.m;
  *l = both.l;
}

// m and l of other parts: [n_parts, n_tokens, n_heads].
struct Scales {
  const float* m;
  const float* l;
  std::int64_t n_parts;
  std::int64_t own;  // the part that counts no more
  std::int64_t part_stride;
  std::int64_t token_stride;
  std::int64_t head_stride;
  bool operator==(const Scales&) const = default;
};

// All lanes find out the same.
__global__ void merge_scales_kernel(Rows rows, StateRef state, Scales scales) {
  const Row row = this_row(rows);
  if (!row.exists) return;
  const std::int64_t at = row.token * scales.token_stride + row.head * scales.head_stride;
  float max = minus_infinity();
  for (std::int64_t part = 0; part < scales.n_parts; ++part) {
    const float part_m = scales.m[at + part * scales.part_stride];
    if (part != scales.own && part_m > max) max = part_m;
  }
  if (max == minus_infinity()) return;
  float sum = 0.0F;
  for (std::int64_t part = 0; part < scales.n_parts; ++part) {
    if (part == scales.own) continue;
    const std::int64_t i = at + part * scales.part_stride;
    sum += scales.l[i] * expf(scales.m[i] - max);
  }
  float* m = state.m_at(row.token, row.head);
  float* l = state.l_at(row.token, row.head);
  const Merged both = merged(*m, *l, max, sum);
  float* o = state.o_at(row.token, row.head);
  for (std::int64_t d = this_lane(); d < rows.head_dim; d += kWarp) o[d] *= both.weight_a;
  sync_warp();  // all lanes have read m and l before lane 0 writes them
  if (this_lane() != 0) return;
  *m = both.m;
  *l = both.l;
}

// out [n_tokens, n_heads, head_dim] is the o of `out`; sink_logits [n_heads] or null.
__global__ void finish_kernel(Rows rows, StateRef state, const float* sink_logits, float* out,
                              std::int64_t out_token_stride, std::int64_t out_head_stride) {
  const Row row = this_row(rows);
  if (!row.exists) return;
  const float sink = sink_logits == nullptr ? minus_infinity() : sink_logits[row.head];
  const float factor =
      finish_factor(*state.m_at(row.token, row.head), *state.l_at(row.token, row.head), sink);
  const float* o = state.o_at(row.token, row.head);
  float* to = out + row.token * out_token_stride + row.head * out_head_stride;
  for (std::int64_t d = this_lane(); d < rows.head_dim; d += kWarp) to[d] = o[d] * factor;
}

Rows rows_of(const SoftmaxStateView& state) {
  return {.n_heads = state.o.dim(1),
          .head_dim = state.o.dim(2),
          .n_rows = state.o.dim(0) * state.o.dim(1)};
}
Grid grid_of(const Rows& rows) {
  return {.x = ceil_div(rows.n_rows, kThreads / kWarp), .block = kThreads};
}

}  // namespace

void clear(Stream& stream, const SoftmaxStateView& state) {
  const Rows rows = rows_of(state);
  launch(stream, "clear", clear_kernel, grid_of(rows), rows, state_ref(state));
}

void merge(Stream& stream, const SoftmaxStateView& into, const SoftmaxStateView& from) {
  const Rows rows = rows_of(into);
  launch(stream, "merge", merge_kernel, grid_of(rows), rows, state_ref(into), state_ref(from));
}

void merge_scales(Stream& stream, const MergeScalesArgs& args) {
  const Rows rows = rows_of(args.state);
  const Scales scales{.m = args.m.data(),
                      .l = args.l.data(),
                      .n_parts = args.m.dim(0),
                      .own = args.own,
                      .part_stride = args.m.stride(0),
                      .token_stride = args.m.stride(1),
                      .head_stride = args.m.stride(2)};
  launch(stream, "merge_scales", merge_scales_kernel, grid_of(rows), rows, state_ref(args.state),
         scales);
}

void finish_attention(Stream& stream, const FinishAttentionArgs& args) {
  const Rows rows = rows_of(args.state);
  const float* sinks = args.sink_logits.empty() ? nullptr : args.sink_logits.data();
  launch(stream, "finish_attention", finish_kernel, grid_of(rows), rows, state_ref(args.state),
         sinks, args.out.data(), args.out.stride(0), args.out.stride(1));
}

}  // namespace longhaul::cuda
