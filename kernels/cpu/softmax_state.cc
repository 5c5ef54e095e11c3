// The algebra of partial attention states on CPUs (kernels/softmax_state.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Runs body(token, head) for all tokens and heads of the state.
template <typename Body>
void for_each_row(const SoftmaxStateView& state, const Body& body) {
  const std::int64_t n_heads = state.o.dim(1);
  parallel_rows(state.o.dim(0), n_heads * state.o.dim(2),
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t token = begin; token < end; ++token) {
                    for (std::int64_t head = 0; head < n_heads; ++head) body(token, head);
                  }
                });
}

// No key seen. (-inf, NaN, ..) is not empty: all scores were NaN, and that must be seen.
bool is_empty(float m, float l) { return m == kMinusInfinity && l == 0.0F; }

// e^(m - reference) as a weight; -inf weighs nothing, whatever the reference.
float weight_of(float m, float reference) {
  return m == kMinusInfinity ? 0.0F : std::exp(m - reference);
}

}  // namespace

void clear(const SoftmaxStateView& state) {
  for_each_row(state, [&](std::int64_t token, std::int64_t head) {
    state.m[token][head] = kMinusInfinity;
    state.l[token][head] = 0.0F;
    std::memset(state.o[token][head].data(), 0,
                static_cast<std::size_t>(state.o.dim(2)) * sizeof(float));
  });
}

void merge(const SoftmaxStateView& into, const SoftmaxStateView& from) {
  for_each_row(into, [&](std::int64_t token, std::int64_t head) {
    const float from_m = from.m[token][head];
    if (is_empty(from_m, from.l[token][head])) return;
    float& m = into.m[token][head];
    float& l = into.l[token][head];
    const float reference = from_m > m ? from_m : m;
    const float old_weight = weight_of(m, reference);
    const float from_weight = weight_of(from_m, reference);
    m = reference;
    l = old_weight * l + from_weight * from.l[token][head];
    float* o = into.o[token][head].data();
    kernels().combine({.out = o,
                       .x = o,
                       .a = old_weight,
                       .y = from.o[token][head].data(),
                       .b = from_weight,
                       .n = into.o.dim(2)});
  });
}

void merge_scales(const MergeScalesArgs& args) {
  const SoftmaxStateView& state = args.state;
  for_each_row(state, [&](std::int64_t token, std::int64_t head) {
    const auto for_each_other = [&](const auto& body) {
      for (std::int64_t part = 0; part < args.m.dim(0); ++part) {
        if (part != args.own) body(args.m[part][token][head], args.l[part][token][head]);
      }
    };
    float max = kMinusInfinity;
    for_each_other([&](float m, float) { max = std::max(max, m); });
    if (max == kMinusInfinity) return;
    float sum = 0.0F;
    for_each_other([&](float m, float l) { sum += l * std::exp(m - max); });
    float& m = state.m[token][head];
    float& l = state.l[token][head];
    const float reference = max > m ? max : m;
    const float own_weight = weight_of(m, reference);
    l = own_weight * l + weight_of(max, reference) * sum;
    m = reference;
    float* o = state.o[token][head].data();
    kernels().combine(
        {.out = o, .x = o, .a = own_weight, .y = nullptr, .b = 0.0F, .n = state.o.dim(2)});
  });
}

void finish_attention(const FinishAttentionArgs& args) {
  const SoftmaxStateView& state = args.state;
  for_each_row(state, [&](std::int64_t token, std::int64_t head) {
    const float m = state.m[token][head];
    const float l = state.l[token][head];
    const float sink = args.sink_logits.empty() ? kMinusInfinity
                                                : args.sink_logits[static_cast<std::size_t>(head)];
    float factor = 0.0F;
    if (!is_empty(m, l)) {
      const float reference = sink > m ? sink : m;
      const float own = weight_of(m, reference);
      factor = own / (l * own + weight_of(sink, reference));
    }
    kernels().combine({.out = args.out[token][head].data(),
                       .x = state.o[token][head].data(),
                       .a = factor,
                       .y = nullptr,
                       .b = 0.0F,
                       .n = state.o.dim(2)});
  });
}

}  // namespace longhaul::cpu
