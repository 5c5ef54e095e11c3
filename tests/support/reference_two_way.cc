#include "tests/support/reference_two_way.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/attention.h"
#include "kernels/reference/operators.h"
#include "model/rope_frequencies.h"

namespace longhaul::test {
namespace {

using Doubles = std::vector<double>;

Doubles doubles(std::span<const float> x) { return {x.begin(), x.end()}; }

Doubles linear(const Doubles& x, const WeightView& weight, std::span<const float> bias) {
  const auto* values = static_cast<const float*>(weight.data);
  return reference::linear(x, Doubles(values, values + weight.n_out * weight.n_in), weight.n_in,
                           doubles(bias));
}

struct TwoWay {
  const TwoWayCase& c;
  const ModelSpec& spec = c.weights.spec();
  std::int64_t n_tokens = static_cast<std::int64_t>(c.tokens.size());
  std::vector<std::int64_t> positions = [this] {
    std::vector<std::int64_t> out(c.tokens.size());
    std::iota(out.begin(), out.end(), std::int64_t{0});
    return out;
  }();

  Doubles norm(const Doubles& x, std::span<const float> weight) const {
    return reference::rms_norm(x, doubles(weight), spec.norm_eps);
  }
  Doubles rotated(Doubles x, std::span<const float> weight, std::int64_t n_heads) const {
    if (!weight.empty()) x = norm(x, weight);
    const RopeFrequencies rope = rope_frequencies(spec);
    return reference::rope(x, positions, rope.inverse_frequencies, n_heads, spec.head_dim,
                           rope.attention_scale);
  }
  // Outputs of the heads.
  Doubles attention(const LayerWeights& layer, const Doubles& hidden,
                    const reference::Mask& mask) const {
    const Doubles x = norm(hidden, layer.attention_norm);
    return reference::attention(
               {.n_heads = spec.n_heads,
                .n_kv_heads = spec.n_kv_heads,
                .head_dim = spec.head_dim,
                .q = rotated(linear(x, layer.q, layer.q_bias), layer.q_norm, spec.n_heads),
                .q_positions = positions,
                .k = rotated(linear(x, layer.k, layer.k_bias), layer.k_norm, spec.n_kv_heads),
                .v = linear(x, layer.v, layer.v_bias),
                .k_positions = positions,
                .masks = {mask},
                .sink_logits = doubles(layer.sink_logits),
                .sm_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim))})
        .out;
  }
  Doubles rest(const LayerWeights& layer, Doubles hidden, const Doubles& heads) const {
    const auto add = [&](const Doubles& part) {
      for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += part[i];
    };
    add(linear(heads, layer.o, layer.o_bias));
    const Doubles x = norm(hidden, layer.ffn_norm);
    add(linear(reference::swiglu(linear(x, layer.gate, layer.gate_bias),
                                 linear(x, layer.up, layer.up_bias)),
               layer.down, layer.down_bias));
    return hidden;
  }
};

}  // namespace

double two_way_distance(const TwoWayCase& c, std::span<const double> gates) {
  const TwoWay model{.c = c};
  const ModelSpec& spec = model.spec;
  const auto* table = static_cast<const float*>(c.weights.embedding().data);
  Doubles teacher;
  for (const std::int32_t token : c.tokens)
    teacher.insert(teacher.end(), table + token * spec.d_model, table + (token + 1) * spec.d_model);
  Doubles student = teacher;
  for (std::int64_t number = 0; number < spec.n_layers; ++number) {
    const LayerWeights& layer = c.weights.layer({number});
    const std::int64_t window = spec.attention_window[static_cast<std::size_t>(number)];
    const bool has_gates = window == ModelSpec::kNoWindow;
    const Doubles theirs = model.attention(layer, teacher, {.sink = 0, .recent = window});
    Doubles heads = model.attention(layer, student,
                                    has_gates ? reference::Mask{.sink = c.sink, .recent = c.recent}
                                              : reference::Mask{.sink = 0, .recent = window});
    for (std::size_t i = 0; has_gates && i < heads.size(); ++i) {
      const auto head =
          static_cast<std::int64_t>(i) / (spec.gqa_group() * spec.head_dim) % spec.n_kv_heads;
      const double gate = gates[static_cast<std::size_t>(number * spec.n_kv_heads + head)];
      heads[i] = gate * theirs[i] + (1 - gate) * heads[i];
    }
    teacher = model.rest(layer, teacher, theirs);
    student = model.rest(layer, student, heads);
  }
  const auto last = [&](const Doubles& x) {
    return model.norm({x.end() - c.n_answer * spec.d_model, x.end()}, c.weights.final_norm());
  };
  const Doubles want = last(teacher);
  const Doubles got = last(student);
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) sum += (got[i] - want[i]) * (got[i] - want[i]);
  return sum / static_cast<double>(got.size());
}

}  // namespace longhaul::test
