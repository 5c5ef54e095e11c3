// Gradients of operators, on one thread. See kernels/cpu/isa/kernels.h.
#include "kernels/cpu/isa/backward.h"

#include "kernels/cpu/isa/for_vectors.h"
#include "kernels/cpu/isa/pack_columns.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Where the parts of an attention task lie in its scratch memory.
struct Parts {
  std::int64_t n_rows;  // queries times heads
  std::int64_t n_keys;
  float* q;       // [n_rows, head_dim], times sm_scale
  float* d_o;     // [n_rows, head_dim]
  float* out;     // [n_rows, head_dim]
  float* turned;  // keys or values [head_dim, n_keys], or weights [n_keys, n_rows]
  float* p;       // [n_rows, n_keys]
  float* d_s;     // [n_rows, n_keys]
};

Parts parts_of(const AttentionBackwardTask& t) {
  Parts parts{};
  parts.n_rows = t.n_queries * t.gqa_group;
  parts.n_keys = t.runs[0].n + t.runs[1].n;
  const std::int64_t row_floats = parts.n_rows * t.head_dim;
  parts.q = t.scratch;
  parts.d_o = parts.q + row_floats;
  parts.out = parts.d_o + row_floats;
  parts.p = parts.out + row_floats;
  parts.d_s = parts.p + parts.n_rows * parts.n_keys;
  parts.turned = parts.d_s + parts.n_rows * parts.n_keys;
  return parts;
}

// The task's rows between its tensors and rows side by side.
void gather(const AttentionBackwardTask& t, const float* from, float scale, float* to) {
  const std::int64_t width = t.gqa_group * t.head_dim;
  for (std::int64_t i = 0; i < t.n_queries; ++i) {
    for_vectors(width, [&](std::int64_t j, auto access) {
      access.store(to + i * width + j, access.load(from + i * t.token_stride + j) * scale);
    });
  }
}
void scatter(const AttentionBackwardTask& t, const float* from, float scale, float* to) {
  const std::int64_t width = t.gqa_group * t.head_dim;
  for (std::int64_t i = 0; i < t.n_queries; ++i) {
    for_vectors(width, [&](std::int64_t j, auto access) {
      access.store(to + i * t.token_stride + j, access.load(from + i * width + j) * scale);
    });
  }
}

// rows [n_rows, head_dim] times the keys (or values) of both runs: [n_rows, n_keys].
void times_turned(const AttentionBackwardTask& t, const Parts& parts, const float* rows,
                  const float* KeyRun::*which, float* to) {
  std::int64_t column = 0;
  for (const KeyRun& run : t.runs) {
    pack_columns<Floats>({run.*which, t.key_stride, run.n, t.head_dim}, parts.n_keys,
                         parts.turned + column);
    column += run.n;
  }
  const Segment segment{parts.turned, t.head_dim};
  multiply<FloatProduct, Start::kZero>(parts.n_rows, parts.n_keys,
                                       {.a = rows,
                                        .a_stride = t.head_dim,
                                        .segments = &segment,
                                        .n_segments = 1,
                                        .b_stride = parts.n_keys,
                                        .c = to,
                                        .c_stride = parts.n_keys,
                                        .row_scale = nullptr,
                                        .left_units = nullptr});
}

// weights [n_rows, n_keys] times the keys (or values) of both runs: [n_rows, head_dim].
void times_keys(const AttentionBackwardTask& t, const Parts& parts, const float* weights,
                const float* KeyRun::*which) {
  const Segment segments[2] = {{t.runs[0].*which, t.runs[0].n}, {t.runs[1].*which, t.runs[1].n}};
  multiply<FloatProduct, Start::kZero>(parts.n_rows, t.head_dim,
                                       {.a = weights,
                                        .a_stride = parts.n_keys,
                                        .segments = segments,
                                        .n_segments = 2,
                                        .b_stride = t.key_stride,
                                        .c = parts.out,
                                        .c_stride = t.head_dim,
                                        .row_scale = nullptr,
                                        .left_units = nullptr});
}

// What each key gets: += weights^T [n_keys, n_rows] times rows [n_rows, head_dim].
void add_to_keys(const AttentionBackwardTask& t, const Parts& parts, const float* weights,
                 const float* rows, float* KeyRun::*which) {
  pack_columns<Floats>({weights, parts.n_keys, parts.n_rows, parts.n_keys}, parts.n_rows,
                       parts.turned);
  const Segment segment{rows, parts.n_rows};
  const float* from = parts.turned;
  for (const KeyRun& run : t.runs) {
    if (run.n == 0) continue;
    multiply<FloatProduct, Start::kAdd>(run.n, t.head_dim,
                                        {.a = from,
                                         .a_stride = parts.n_rows,
                                         .segments = &segment,
                                         .n_segments = 1,
                                         .b_stride = t.head_dim,
                                         .c = run.*which,
                                         .c_stride = t.head_dim,
                                         .row_scale = nullptr,
                                         .left_units = nullptr});
    from += run.n * parts.n_rows;
  }
}

// One row of scores becomes softmax weights; zeros where the query sees nothing.
void softmax(float* row, std::int64_t n_keys, const SeenKeys& seen, const float* sink_logit) {
  for (std::int64_t i = seen.gap_begin; i < seen.gap_end; ++i) row[i] = -kInfinity;
  for (std::int64_t i = seen.end; i < n_keys; ++i) row[i] = -kInfinity;
  float best = sink_logit == nullptr ? -kInfinity : *sink_logit;
  for (std::int64_t i = 0; i < n_keys; ++i) best = row[i] > best ? row[i] : best;
  if (best == -kInfinity) best = 0;
  Vec sums{};
  for_vectors(n_keys, [&](std::int64_t i, auto access) {
    access.store(row + i, exp_below(access.load(row + i) - best));
    sums += access.load(row + i);
  });
  float sum = sum_of(sums);
  if (sink_logit != nullptr) sum += exp_below(broadcast(*sink_logit - best))[0];
  const float factor = sum > 0 ? 1.0F / sum : 0.0F;
  for_vectors(n_keys, [&](std::int64_t i, auto access) {
    access.store(row + i, access.load(row + i) * factor);
  });
}

// d_s = p (d_p - sum(p d_p)), in the place of d_p.
void softmax_backward(const float* p, float* d_p, std::int64_t n_keys) {
  Vec sums{};
  for_vectors(n_keys, [&](std::int64_t i, auto access) {
    sums += access.load(p + i) * access.load(d_p + i);
  });
  const Vec sum = broadcast(sum_of(sums));
  for_vectors(n_keys, [&](std::int64_t i, auto access) {
    access.store(d_p + i, access.load(p + i) * (access.load(d_p + i) - sum));
  });
}

}  // namespace

void transpose_floats(const TransposeTask& t) {
  pack_columns<Floats>({t.from, t.from_stride, t.n_rows, t.n_columns}, t.to_stride, t.to);
}

void rms_norm_backward(const RmsNormBackwardTask& t) {
  Vec squares{};
  Vec products{};
  for_vectors(t.width, [&](std::int64_t i, auto access) {
    const Vec x = access.load(t.x + i);
    squares += x * x;
    products += x * access.load(t.d_out + i) * access.load(t.weight + i);
  });
  const auto width = static_cast<float>(t.width);
  const float factor = 1.0F / __builtin_sqrtf(sum_of(squares) / width + t.eps);
  const Vec scale = broadcast(factor);
  const Vec pull = broadcast(factor * factor * factor * (sum_of(products) / width));
  for_vectors(t.width, [&](std::int64_t i, auto access) {
    const Vec g = access.load(t.d_out + i) * access.load(t.weight + i);
    Vec out = scale * g - pull * access.load(t.x + i);
    if (t.adds) out += access.load(t.d_x + i);
    access.store(t.d_x + i, out);
  });
}

void swiglu_backward(const SwigluBackwardTask& t) {
  for_vectors(t.n, [&](std::int64_t i, auto access) {
    const Vec gate = access.load(t.gate + i);
    const Vec up = access.load(t.up + i);
    const Vec d_out = access.load(t.d_out + i);
    const Vec s = 1.0F / (1.0F + exp(-gate));
    access.store(t.d_gate + i, d_out * up * s * (1.0F + gate * (1.0F - s)));
    access.store(t.d_up + i, d_out * gate * s);
  });
}

std::int64_t attention_backward_scratch(std::int64_t n_rows, std::int64_t n_keys,
                                        std::int64_t head_dim) {
  const std::int64_t wider = n_rows > head_dim ? n_rows : head_dim;
  return 3 * n_rows * head_dim + 2 * n_rows * n_keys + wider * n_keys;
}

void attention_backward(const AttentionBackwardTask& t) {
  const FlushDenormals flush;
  const Parts parts = parts_of(t);
  gather(t, t.q, t.sm_scale, parts.q);
  gather(t, t.d_o, 1.0F, parts.d_o);
  times_turned(t, parts, parts.q, &KeyRun::k, parts.p);
  for (std::int64_t row = 0; row < parts.n_rows; ++row) {
    softmax(parts.p + row * parts.n_keys, parts.n_keys, t.seen[row / t.gqa_group],
            t.sink_logits == nullptr ? nullptr : t.sink_logits + row % t.gqa_group);
  }
  times_keys(t, parts, parts.p, &KeyRun::v);
  scatter(t, parts.out, 1.0F, t.o);
  times_turned(t, parts, parts.d_o, &KeyRun::v, parts.d_s);
  for (std::int64_t row = 0; row < parts.n_rows; ++row) {
    softmax_backward(parts.p + row * parts.n_keys, parts.d_s + row * parts.n_keys, parts.n_keys);
  }
  times_keys(t, parts, parts.d_s, &KeyRun::k);
  scatter(t, parts.out, t.sm_scale, t.d_q);
  add_to_keys(t, parts, parts.p, parts.d_o, &KeyRun::d_v);
  add_to_keys(t, parts, parts.d_s, parts.q, &KeyRun::d_k);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
