// The operators that work row by row: embedding, rms_norm, rope, swiglu.
#include <cmath>

#include "kernels/embedding.h"
#include "kernels/highest_weights.h"
#include "kernels/reference/operators.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

class RowOperators : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(RowOperators);

const Tolerance kF32 = operator_tolerance(DType::kF32);

TEST_P(RowOperators, RmsNormMatchesTheReference) {
  Random random(base_seed());
  for (const std::int64_t width : {1, 5, 64, 100, 4097}) {
    const std::int64_t n_rows = 13;
    const std::vector<float> values = random.normals(n_rows * width, 3.0);
    const std::vector<float> weights = random.normals(width);
    const std::vector<double> want = reference::rms_norm(widened(values), widened(weights), 1e-5F);
    const Memory x(stream(), values);
    const Memory weight(stream(), weights);
    const TensorView<float, 2> view(x.data(), {n_rows, width});
    rms_norm(stream(), {.x = view, .weight = weight.span(), .eps = 1e-5F, .out = view});
    EXPECT_TRUE(close(x.values(), want, kF32)) << width;
  }
}

TEST_P(RowOperators, RmsNormReadsStridedRows) {
  Random random(base_seed());
  const std::vector<float> x = random.normals(4 * 30);
  const std::vector<float> weight = random.normals(10);
  const Memory x_there(stream(), x);
  const Memory weight_there(stream(), weight);
  const Memory out_there(stream(), 4 * 20, -1.0F);
  rms_norm(stream(), {.x = TensorView<const float, 2>(x_there.data() + 7, {4, 10}, {30, 1}),
                      .weight = weight_there.span(),
                      .eps = 0.0F,
                      .out = TensorView<float, 2>(out_there.data() + 3, {4, 10}, {20, 1})});
  const std::vector<float> out = out_there.values();
  for (std::size_t row = 0; row < 4; ++row) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(30 * row + 7);
    const std::vector<double> want = reference::rms_norm({begin, begin + 10}, widened(weight), 0.0);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(out[20 * row + 3 + i], want[i], 1e-5);
    EXPECT_EQ(out[20 * row + 2], -1.0F);
    EXPECT_EQ(out[20 * row + 13], -1.0F);
  }
}

TEST_P(RowOperators, SwigluMatchesTheReferenceAlsoFarOut) {
  Random random(base_seed());
  for (const std::int64_t width : {1, 7, 33, 9000}) {
    const std::vector<float> gates = random.normals(3 * width, 30.0);
    const std::vector<float> ups = random.normals(3 * width);
    const std::vector<double> want = reference::swiglu(widened(gates), widened(ups));
    const Memory gate(stream(), gates);
    const Memory up(stream(), ups);
    const TensorView<float, 2> view(gate.data(), {3, width});
    swiglu(stream(),
           {.gate = view, .up = TensorView<const float, 2>(up.data(), {3, width}), .out = view});
    EXPECT_TRUE(close(gate.values(), want, kF32)) << width;
  }
}

// The kernels' own exp, seen through silu: relative error over its whole range, and its edges.
TEST_P(RowOperators, ExpIsAccurateOverItsRange) {
  std::vector<float> gate;
  for (float x = -86.0F; x < 88.0F; x += 0.0137F) gate.push_back(x);
  const auto n = static_cast<std::int64_t>(gate.size());
  const Memory gate_there(stream(), gate);
  const Memory up(stream(), n, 1.0F);
  const Memory out_there(stream(), n, 0.0F);
  swiglu(stream(), {.gate = TensorView<const float, 2>(gate_there.data(), {1, n}),
                    .up = TensorView<const float, 2>(up.data(), {1, n}),
                    .out = TensorView<float, 2>(out_there.data(), {1, n})});
  const std::vector<float> out = out_there.values();
  double worst = 0;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double want = gate[i] / (1 + std::exp(-static_cast<double>(gate[i])));
    if (want != 0) worst = std::max(worst, std::fabs(out[i] - want) / std::fabs(want));
  }
  EXPECT_LT(worst, 3e-7);
  const Memory edges_there(stream(), std::vector<float>{-200.0F, 200.0F, 0.0F, std::nanf("")});
  const TensorView<float, 2> view(edges_there.data(), {1, 4});
  swiglu(stream(), {view, TensorView<const float, 2>(up.data(), {1, 4}), view});
  const std::vector<float> edges = edges_there.values();
  EXPECT_EQ(edges[0], -0.0F);
  EXPECT_EQ(edges[1], 200.0F);
  EXPECT_EQ(edges[2], 0.0F);
  EXPECT_TRUE(std::isnan(edges[3]));
}

struct RopeCase {
  std::int64_t n_heads;
  std::int64_t head_dim;
  std::int64_t rotary_dim;
  double attention_scale;
};

TEST_P(RowOperators, RopeMatchesTheReferenceAtFarPositions) {
  Random random(base_seed());
  for (const RopeCase& c : {RopeCase{3, 64, 64, 1.0}, {1, 80, 32, 1.25}, {5, 10, 10, 1.0}}) {
    const std::vector<std::int64_t> positions = {0, 1, 77, 4'194'304, 12'345'678};
    const auto n_tokens = static_cast<std::int64_t>(positions.size());
    const std::int64_t half = c.rotary_dim / 2;
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < half; ++i) {
      frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
    }
    const std::vector<float> values = random.normals(n_tokens * c.n_heads * c.head_dim);
    const std::vector<double> want = reference::rope(widened(values), positions, frequencies,
                                                     c.n_heads, c.head_dim, c.attention_scale);
    const Memory x(stream(), values);
    const Memory cos(stream(), n_tokens * half, 0.0F);
    const Memory sin(stream(), n_tokens * half, 0.0F);
    const TensorView<float, 2> cos_view(cos.data(), {n_tokens, half});
    const TensorView<float, 2> sin_view(sin.data(), {n_tokens, half});
    rope_angles(stream(), {.positions = positions,
                           .inverse_frequencies = frequencies,
                           .attention_scale = c.attention_scale,
                           .cos = cos_view,
                           .sin = sin_view});
    rope(stream(), {.x = TensorView<float, 3>(x.data(), {n_tokens, c.n_heads, c.head_dim}),
                    .cos = cos_view,
                    .sin = sin_view});
    EXPECT_TRUE(close(x.values(), want, kF32));
  }
}

TEST_P(RowOperators, RopeReachesOnlyItsOwnHeads) {
  const Memory x_there(stream(), 2 * 3 * 8, 1.0F);
  const Memory zero(stream(), 2 * 4, 0.0F);
  // Heads 1 and 2 of three; a turn by 90 degrees.
  const Memory one(stream(), 2 * 4, 1.0F);
  rope(stream(), {.x = TensorView<float, 3>(x_there.data(), {2, 3, 8}).slice(1, {1, 3}),
                  .cos = TensorView<const float, 2>(zero.data(), {2, 4}),
                  .sin = TensorView<const float, 2>(one.data(), {2, 4})});
  const std::vector<float> x = x_there.values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float want = i % 24 < 8 ? 1.0F : i % 8 < 4 ? -1.0F : 1.0F;
    EXPECT_EQ(x[i], want) << i;
  }
}

TEST_P(RowOperators, EmbeddingCopiesRows) {
  Random random(base_seed());
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Weight table(dtype, 11, 37, random.normals(11 * 37));
    const std::vector<std::int32_t> tokens = {10, 0, 3, 3};
    const Memory<std::byte> table_there(stream(), table.bytes());
    const Memory out_there(stream(), 4 * 37, 0.0F);
    embedding(stream(), {.table = table.view_at(table_there.data()),
                         .tokens = tokens,
                         .out = TensorView<float, 2>(out_there.data(), {4, 37})});
    const std::vector<float> out = out_there.values();
    for (std::size_t t = 0; t < 4; ++t) {
      for (std::size_t i = 0; i < 37; ++i) {
        EXPECT_EQ(out[t * 37 + i], table.values[static_cast<std::size_t>(tokens[t]) * 37 + i]);
      }
    }
  }
}

TEST_P(RowOperators, HighestWeightsAreThoseOfAnyRow) {
  Random random(base_seed());
  const std::int64_t n_rows = 9;
  const std::int64_t n_keys = 300;
  const std::int64_t n = 290;
  const std::vector<float> scores = random.normals(n_rows * n_keys, 4.0);
  std::vector<float> m, l;
  for (std::int64_t row = 0; row < n_rows; ++row) {
    m.push_back(static_cast<float>(random.integer(4, 12)));
    l.push_back(static_cast<float>(random.integer(1, 9)));
  }
  std::vector<float> highest(static_cast<std::size_t>(n), 0.01F);
  std::vector<double> want(highest.begin(), highest.end());
  for (std::size_t row = 0; row < m.size(); ++row) {
    for (std::size_t key = 0; key < want.size(); ++key) {
      const double score = 0.5 * static_cast<double>(scores[row * n_keys + key]);
      const double weight =
          std::exp(score - static_cast<double>(m[row])) / static_cast<double>(l[row]);
      want[key] = std::max(want[key], weight);
    }
  }
  const Memory scores_there(stream(), scores), m_there(stream(), m), l_there(stream(), l),
      highest_there(stream(), highest);
  highest_weights(stream(), {.scores = TensorView<float, 2>(scores_there.data(), {n_rows, n_keys}),
                             .scale = 0.5F,
                             .m = TensorView<float, 2>(m_there.data(), {n_rows, 1}),
                             .l = TensorView<float, 2>(l_there.data(), {n_rows, 1}),
                             .highest = TensorView<float, 1>(highest_there.data(), {n})});
  EXPECT_TRUE(close(highest_there.values(), want, {1e-6, 1e-5, 1 - 1e-9}));
}

TEST(RowArguments, BadOnesAreRefused) {
  std::vector<float> x(12);
  const TensorView<float, 2> wide(x.data(), {2, 6});
  const TensorView<float, 2> narrow(x.data(), {2, 5});
  const std::vector<float> weight(5);
  EXPECT_THROW(rms_norm(StreamRef::cpu(), {.x = wide, .weight = weight, .out = wide}), Error);
  EXPECT_THROW(swiglu(StreamRef::cpu(), {wide, narrow, wide}), Error);
  EXPECT_THROW(rope(StreamRef::cpu(), {TensorView<float, 3>(x.data(), {2, 1, 6}),
                                       TensorView<float, 2>(x.data(), {2, 4}),
                                       TensorView<float, 2>(x.data(), {2, 4})}),
               Error);
  const Weight table(DType::kF32, 3, 6, std::vector<float>(18));
  for (const std::int32_t token : {-1, 3}) {
    const std::vector<std::int32_t> tokens = {0, token};
    try {
      embedding(StreamRef::cpu(), {table.view(), tokens, wide});
      ADD_FAILURE() << token;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("token 1 is " + std::to_string(token)),
                std::string::npos);
    }
  }
}

}  // namespace
}  // namespace longhaul::test
