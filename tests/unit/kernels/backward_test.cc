// Gradients: the references against finite differences of the reference operators, and the kernels
// of every instruction set and of the GPU against the references.
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/backward/attention_backward.h"
#include "kernels/backward/linear_backward.h"
#include "kernels/backward/mix_heads.h"
#include "kernels/backward/rows_backward.h"
#include "kernels/cpu/threads.h"
#include "kernels/reference/backward.h"
#include "kernels/reference/operators.h"
#include "kernels/rope.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

Doubles widened(const Floats& x) { return {x.begin(), x.end()}; }
Doubles random_doubles(Random& random, std::int64_t n, double scale = 1.0) {
  return widened(random.normals(n, scale));
}

double dot(const Doubles& a, const Doubles& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The gradient of sum(d_out * f(x)) by central differences.
Doubles finite_differences(const std::function<Doubles(const Doubles&)>& f, Doubles x,
                           const Doubles& d_out) {
  Doubles gradient;
  for (double& value : x) {
    const double before = value;
    const double step = 1e-5 * std::max(1.0, std::abs(before));
    value = before + step;
    const double above = dot(f(x), d_out);
    value = before - step;
    const double below = dot(f(x), d_out);
    value = before;
    gradient.push_back((above - below) / (2 * step));
  }
  return gradient;
}

void expect_equal(const Doubles& got, const Doubles& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-7 * (1 + std::abs(want[i]))) << what << " " << i;
}

TEST(BackwardReference, EqualsFiniteDifferencesOfProductsNormsAndSwiglu) {
  Random random(base_seed());
  const Doubles x = random_doubles(random, 3 * 7, 2.0);
  const Doubles weight = random_doubles(random, 5 * 7);
  const Doubles d_5 = random_doubles(random, 3 * 5);
  expect_equal(reference::linear_backward(d_5, weight, 7),
               finite_differences(
                   [&](const Doubles& at) { return reference::linear(at, weight, 7); }, x, d_5),
               "linear");
  const Doubles norm = random_doubles(random, 7);
  const Doubles d_7 = random_doubles(random, 3 * 7);
  expect_equal(reference::rms_norm_backward(x, norm, 1e-3, d_7),
               finite_differences(
                   [&](const Doubles& at) { return reference::rms_norm(at, norm, 1e-3); }, x, d_7),
               "rms_norm");
  const Doubles up = random_doubles(random, 3 * 7);
  const auto swiglu = reference::swiglu_backward(x, up, d_7);
  expect_equal(
      swiglu.d_gate,
      finite_differences([&](const Doubles& at) { return reference::swiglu(at, up); }, x, d_7),
      "gate");
  expect_equal(
      swiglu.d_up,
      finite_differences([&](const Doubles& at) { return reference::swiglu(x, at); }, up, d_7),
      "up");
}

TEST(BackwardReference, EqualsFiniteDifferencesOfRope) {
  Random random(base_seed());
  const std::vector<std::int64_t> positions = {0, 3, 1000};
  const Doubles frequencies = {1.0, 0.1, 0.003};
  const Doubles x = random_doubles(random, 3 * 2 * 8);
  const Doubles d = random_doubles(random, 3 * 2 * 8);
  expect_equal(
      reference::rope_backward(d, positions, frequencies, 2, 8, 1.3),
      finite_differences(
          [&](const Doubles& at) { return reference::rope(at, positions, frequencies, 2, 8, 1.3); },
          x, d),
      "rope");
}

reference::AttentionCase attention_case(Random& random, std::int64_t group, std::int64_t head_dim,
                                        std::int64_t n_queries, std::int64_t n_keys) {
  reference::AttentionCase c{.n_heads = 2 * group,
                             .n_kv_heads = 2,
                             .head_dim = head_dim,
                             .q = random_doubles(random, n_queries * 2 * group * head_dim),
                             .q_positions = {},
                             .k = random_doubles(random, n_keys * 2 * head_dim),
                             .v = random_doubles(random, n_keys * 2 * head_dim),
                             .k_positions = {},
                             .masks = {},
                             .sink_logits = {},
                             .sm_scale = 1 / std::sqrt(static_cast<double>(head_dim))};
  for (std::int64_t i = 0; i < n_keys; ++i) c.k_positions.push_back(i);
  for (std::int64_t i = n_keys - n_queries; i < n_keys; ++i) c.q_positions.push_back(i);
  return c;
}

TEST(BackwardReference, EqualsFiniteDifferencesOfAttention) {
  Random random(base_seed());
  reference::AttentionCase c = attention_case(random, 2, 4, 7, 9);
  c.masks = {{.sink = 2, .recent = 3}};
  c.sink_logits = random_doubles(random, 4);
  const Doubles d = random_doubles(random, 7 * 4 * 4);
  const auto gradient = reference::attention_backward(c, d);
  const auto numeric = [&](Doubles reference::AttentionCase::*part) {
    return finite_differences(
        [&](const Doubles& at) {
          reference::AttentionCase moved = c;
          moved.*part = at;
          return reference::attention(moved).out;
        },
        c.*part, d);
  };
  expect_equal(gradient.d_q, numeric(&reference::AttentionCase::q), "q");
  expect_equal(gradient.d_k, numeric(&reference::AttentionCase::k), "k");
  expect_equal(gradient.d_v, numeric(&reference::AttentionCase::v), "v");
}

class Backward : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(Backward);

const Tolerance kF32 = operator_tolerance(DType::kF32);

TensorView<float, 2> matrix(const Memory<float>& x, std::int64_t width) {
  return {x.data(), {x.size() / width, width}};
}

TEST_P(Backward, ProductsWithFloatWeights) {
  Random random(base_seed());
  for (const auto& [n_tokens, n_out, n_in] :
       {std::array{1, 3, 5}, std::array{40, 70, 130}, std::array{65, 128, 64}}) {
    const Floats d_out = random.normals(n_tokens * n_out);
    const Floats weight = random.normals(n_out * (n_in + 2));  // rows lie apart
    const Floats before = random.normals(n_tokens * n_in);
    Floats dense;
    for (int out = 0; out < n_out; ++out)
      dense.insert(dense.end(), weight.begin() + out * (n_in + 2),
                   weight.begin() + out * (n_in + 2) + n_in);
    Doubles want = reference::linear_backward(widened(d_out), widened(dense), n_in);
    const Memory<float> d_out_there(stream(), d_out);
    const Memory<float> weight_there(stream(), weight);
    const Memory<float> d_x(stream(), before);
    const Memory<float> sum(stream(), before);
    const WeightView view{
        .data = weight_there.data(), .n_out = n_out, .n_in = n_in, .row_stride = n_in + 2};
    linear_backward(
        stream(), {.d_out = matrix(d_out_there, n_out), .weight = view, .d_x = matrix(d_x, n_in)});
    linear_backward(stream(), {.d_out = matrix(d_out_there, n_out),
                               .weight = view,
                               .d_x = matrix(sum, n_in),
                               .output = LinearOutput::kAccumulate});
    EXPECT_TRUE(close(d_x.values(), want, {1e-4, 1e-5, 1 - 1e-9})) << n_tokens;
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(before[i]);
    EXPECT_TRUE(close(sum.values(), want, {1e-4, 1e-5, 1 - 1e-9})) << n_tokens;
  }
}

TEST_P(Backward, ProductsWithBf16Weights) {
  Random random(base_seed());
  for (const std::int64_t n_tokens : {3, 90}) {
    const std::int64_t n_out = 96;
    const std::int64_t n_in = 70;
    Floats d_out = random.normals(n_tokens * n_out);
    std::vector<BFloat16> weight;
    Doubles widened;
    for (const float value : random.normals(n_out * n_in)) {
      weight.push_back(to_bf16(value));
      widened.push_back(static_cast<double>(to_float(weight.back())));
    }
    Doubles rounded;
    for (const float value : d_out)
      rounded.push_back(static_cast<double>(to_float(to_bf16(value))));
    const Memory<float> d_out_there(stream(), d_out);
    const Memory<BFloat16> weight_there(stream(), weight);
    const Memory<float> d_x(stream(), n_tokens * n_in);
    linear_backward(stream(), {.d_out = matrix(d_out_there, n_out),
                               .weight = {.data = weight_there.data(),
                                          .dtype = DType::kBf16,
                                          .n_out = n_out,
                                          .n_in = n_in},
                               .d_x = matrix(d_x, n_in)});
    EXPECT_TRUE(close(d_x.values(), reference::linear_backward(rounded, widened, n_in),
                      {1e-3, 1e-4, 1 - 1e-8}));
  }
}

TEST_P(Backward, Norms) {
  Random random(base_seed());
  for (const std::int64_t width : {1, 5, 64, 1000}) {
    const std::int64_t n_rows = 11;
    const Floats x = random.normals(n_rows * width, 2.0);
    const Floats weight = random.normals(width);
    const Floats d = random.normals(n_rows * width);
    const Doubles want =
        reference::rms_norm_backward(widened(x), widened(weight), 1e-3F, widened(d));
    const Memory<float> x_there(stream(), x);
    const Memory<float> weight_there(stream(), weight);
    const Memory<float> d_out(stream(), d);
    const Memory<float> d_x(stream(), n_rows * width, 2.0F);
    const RmsNormBackwardArgs args{.x = matrix(x_there, width),
                                   .weight = weight_there.span(),
                                   .eps = 1e-3F,
                                   .d_out = matrix(d_out, width),
                                   .d_x = matrix(d_x, width)};
    RmsNormBackwardArgs more = args;
    more.adds = true;
    rms_norm_backward(stream(), more);
    const Floats sum = d_x.values();
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(sum[i], want[i] + 2, 1e-4) << width;
    RmsNormBackwardArgs in_place = args;
    in_place.d_x = matrix(d_out, width);
    rms_norm_backward(stream(), in_place);
    EXPECT_TRUE(close(d_out.values(), want, {1e-4, 1e-4, 1 - 1e-8})) << width;
  }
}

TEST_P(Backward, Swiglu) {
  Random random(base_seed());
  for (const std::int64_t width : {1, 7, 33, 900}) {
    const Floats gate = random.normals(3 * width, 10.0);
    const Floats up = random.normals(3 * width);
    const Floats d = random.normals(3 * width);
    const auto want = reference::swiglu_backward(widened(gate), widened(up), widened(d));
    const Memory<float> gate_there(stream(), gate);
    const Memory<float> up_there(stream(), up);
    const Memory<float> d_out(stream(), d);
    swiglu_backward(stream(), {.gate = matrix(gate_there, width),
                               .up = matrix(up_there, width),
                               .d_out = matrix(d_out, width),
                               .d_gate = matrix(gate_there, width),
                               .d_up = matrix(d_out, width)});
    EXPECT_TRUE(close(gate_there.values(), want.d_gate, kF32)) << width;
    EXPECT_TRUE(close(d_out.values(), want.d_up, kF32)) << width;
  }
}

// Of both operators, from their definition.
TEST_P(Backward, HeadsMixedByGates) {
  Random random(base_seed());
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kKvHeads = 3;
  constexpr std::int64_t kWidth = 2 * 20;  // two heads of 20
  const std::array<std::int64_t, 3> shape{kRows, 2 * kKvHeads, 20};
  const Floats gates = {0.0F, 0.25F, 1.0F};
  const Floats own = random.normals(kRows * kKvHeads * kWidth);
  const Floats other = random.normals(kRows * kKvHeads * kWidth);
  const Floats d = random.normals(kRows * kKvHeads * kWidth);
  Doubles mixed;
  Doubles own_part;
  Doubles d_gates(kRows * kKvHeads);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double gate = static_cast<double>(gates[i / kWidth % kKvHeads]);
    own_part.push_back((1 - gate) * static_cast<double>(own[i]));
    mixed.push_back(gate * static_cast<double>(other[i]) + own_part.back());
    d_gates[i / kWidth] +=
        static_cast<double>(d[i]) * (static_cast<double>(other[i]) - static_cast<double>(own[i]));
  }
  const Memory<float> own_there(stream(), own);
  const Memory<float> other_there(stream(), other);
  const Memory<float> d_there(stream(), d);
  const Memory<float> sums(stream(), kRows * kKvHeads);
  const Memory<float> part(stream(), static_cast<std::int64_t>(own.size()));
  const auto heads = [&](const Memory<float>& x) { return TensorView<float, 3>(x.data(), shape); };
  gate_gradients(stream(), {.d_mixed = heads(d_there),
                            .other = heads(other_there),
                            .own = heads(own_there),
                            .out = matrix(sums, kKvHeads)});
  EXPECT_TRUE(close(sums.values(), d_gates, {1e-5, 1e-5, 1 - 1e-9}));
  mix_heads(stream(), {.gates = gates, .own = heads(own_there), .out = heads(part)});
  EXPECT_TRUE(close(part.values(), own_part, kF32));
  mix_heads(stream(), {.gates = gates,
                       .other = heads(other_there),
                       .own = heads(own_there),
                       .out = heads(own_there)});
  EXPECT_TRUE(close(own_there.values(), mixed, kF32));
}

// As kernels/backward/rows_backward.h promises.
TEST_P(Backward, RopeIsTurnedBackByMinusSin) {
  Random random(base_seed());
  const std::vector<std::int64_t> positions = {2, 70, 5000};
  const Doubles frequencies = {1.0, 0.2, 0.01, 0.0004};
  Floats d = random.normals(3 * 2 * 8);
  const Doubles want = reference::rope_backward(widened(d), positions, frequencies, 2, 8, 0.9);
  const Memory<float> cos(stream(), 3 * 4);
  const Memory<float> sin(stream(), 3 * 4);
  std::vector<std::int64_t> below = positions;
  for (std::int64_t& position : below) position = -position;
  rope_angles(stream(), {.positions = below,
                         .inverse_frequencies = frequencies,
                         .attention_scale = 0.9,
                         .cos = matrix(cos, 4),
                         .sin = matrix(sin, 4)});
  const Memory<float> x(stream(), d);
  rope(stream(), {.x = TensorView<float, 3>(x.data(), {3, 2, 8}),
                  .cos = matrix(cos, 4),
                  .sin = matrix(sin, 4)});
  EXPECT_TRUE(close(x.values(), want, kF32));
}

struct AttentionRun {
  Floats o, d_q, d_k, d_v;
};

AttentionRun run(StreamRef stream, const reference::AttentionCase& c, const Floats& d_out) {
  const auto n_queries = static_cast<std::int64_t>(c.q_positions.size());
  const auto n_keys = static_cast<std::int64_t>(c.k_positions.size());
  const std::array<std::int64_t, 3> q_shape{n_queries, c.n_heads, c.head_dim};
  const std::array<std::int64_t, 3> k_shape{n_keys, c.n_kv_heads, c.head_dim};
  const auto there = [&](const Doubles& x) {
    return Memory<float>(stream, Floats(x.begin(), x.end()));
  };
  const Memory<float> q = there(c.q), k = there(c.k), v = there(c.v), sinks = there(c.sink_logits);
  const Memory<float> o(stream, q.size(), 7.0F), d_k(stream, k.size(), 7.0F),
      d_v(stream, k.size(), 7.0F), d_o(stream, d_out);
  attention_backward(stream, {.q = {q.data(), q_shape},
                              .q_positions = c.q_positions,
                              .k = {k.data(), k_shape},
                              .v = {v.data(), k_shape},
                              .k_positions = c.k_positions,
                              .mask = {.sink = c.masks.at(0).sink, .recent = c.masks.at(0).recent},
                              .sm_scale = static_cast<float>(c.sm_scale),
                              .sink_logits = sinks.span(),
                              .d_o = {d_o.data(), q_shape},
                              .o = {o.data(), q_shape},
                              .d_q = {d_o.data(), q_shape},
                              .d_k = {d_k.data(), k_shape},
                              .d_v = {d_v.data(), k_shape}});
  return {o.values(), d_o.values(), d_k.values(), d_v.values()};
}

void expect_reference(StreamRef stream, const reference::AttentionCase& c, Random& random) {
  const Floats d_o = random.normals(static_cast<std::int64_t>(c.q.size()));
  const AttentionRun got = run(stream, c, d_o);
  const auto want = reference::attention_backward(c, widened(d_o));
  const Tolerance tolerance{3e-5, 3e-5, 1 - 1e-9};
  EXPECT_TRUE(close(got.o, reference::attention(c).out, tolerance));
  EXPECT_TRUE(close(got.d_q, want.d_q, tolerance));
  EXPECT_TRUE(close(got.d_k, want.d_k, tolerance));
  EXPECT_TRUE(close(got.d_v, want.d_v, tolerance));
}

TEST_P(Backward, AttentionUnderEveryWindow) {
  Random random(base_seed());
  for (const reference::Mask mask :
       {reference::Mask{}, reference::Mask{.sink = 0, .recent = 1},
        reference::Mask{.sink = 5, .recent = 1}, reference::Mask{.sink = 3, .recent = 17},
        reference::Mask{.sink = 40, .recent = 33}, reference::Mask{.sink = 500, .recent = 10}}) {
    for (const std::int64_t group : {1, 3}) {
      // More than a segment of queries once: what several segments give to a key is added.
      const std::int64_t n_keys = mask.sink == 40 ? 300 : 80;
      reference::AttentionCase c = attention_case(random, group, 16, n_keys - 10, n_keys);
      c.masks = {mask};
      expect_reference(stream(), c, random);
    }
  }
}

// As on a ring: every other block of queries, and keys that are not there between sinks and window.
TEST_P(Backward, AttentionOfQueriesAndKeysWithGaps) {
  Random random(base_seed());
  reference::AttentionCase c = attention_case(random, 2, 12, 90, 150);
  c.masks = {{.sink = 20, .recent = 24}};
  for (std::size_t i = 0; i < c.q_positions.size(); ++i)
    c.q_positions[i] = 600 + static_cast<std::int64_t>(i / 16 * 32 + i % 16);
  for (std::size_t i = 32; i < c.k_positions.size(); ++i)
    c.k_positions[i] = 560 + static_cast<std::int64_t>(i);
  c.sink_logits = random_doubles(random, c.n_heads);
  expect_reference(stream(), c, random);
}

// Every width of a row in shared memory; sinks whose queries are more than a task's.
TEST_P(Backward, AttentionOfEveryHeadDim) {
  Random random(base_seed());
  for (const std::int64_t head_dim : {4, 64, 80, 130}) {
    reference::AttentionCase c = attention_case(random, 2, head_dim, 40, 50);
    c.masks = {{.sink = 2, .recent = 9}};
    expect_reference(stream(), c, random);
  }
  reference::AttentionCase c = attention_case(random, 12, 4, 400, 400);
  c.masks = {{.sink = 40, .recent = 20}};
  expect_reference(stream(), c, random);
}

TEST_P(Backward, AttentionHasTheSameBitsWithAnyNumberOfThreads) {
  Random random(base_seed());
  reference::AttentionCase c = attention_case(random, 2, 16, 700, 700);
  c.masks = {{.sink = 4, .recent = 50}};
  const Floats d_o = random.normals(static_cast<std::int64_t>(c.q.size()));
  set_kernel_threads(1);
  const AttentionRun one = run(stream(), c, d_o);
  set_kernel_threads(3);
  const AttentionRun three = run(stream(), c, d_o);
  EXPECT_EQ(one.d_k, three.d_k);
  EXPECT_EQ(one.d_v, three.d_v);
  EXPECT_EQ(one.d_q, three.d_q);
}

}  // namespace
}  // namespace longhaul::test
