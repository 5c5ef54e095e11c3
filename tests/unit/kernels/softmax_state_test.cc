// The algebra of partial attention states: identity, order, association, and the last step.
#include "kernels/softmax_state.h"

#include <cmath>
#include <limits>

#include "kernels/reference/operators.h"
#include "tests/support/compare.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

class SoftmaxStates : public EachDevice {
 protected:
  SoftmaxState merged(const SoftmaxState& into, const SoftmaxState& from) const {
    const StateThere there(stream(), into);
    merge(stream(), there.view(), StateThere(stream(), from).view());
    return there.state();
  }
  SoftmaxState cleared(const SoftmaxState& state) const {
    const StateThere there(stream(), state);
    clear(stream(), there.view());
    return there.state();
  }
  std::vector<float> finished(const SoftmaxState& state, const std::vector<float>& sinks) const {
    const Memory out(stream(), state.o.size(), 0.0F);
    const Memory there(stream(), sinks);
    finish_attention(stream(), {StateThere(stream(), state).view(), there.span(),
                                TensorView<float, 3>(out.data(), state.o.view().shape())});
    return out.values();
  }
};
LONGHAUL_ON_EACH_DEVICE(SoftmaxStates);

SoftmaxState random_state(Random& random, std::int64_t n_tokens, std::int64_t n_heads,
                          std::int64_t head_dim) {
  SoftmaxState state(n_tokens, n_heads, head_dim);
  for (std::int64_t i = 0; i < state.m.size(); ++i) {
    const bool empty = random.chance(0.2);
    state.m.data()[i] = empty ? kMinusInfinity : static_cast<float>(random.uniform(-60, 60));
    state.l.data()[i] = empty ? 0.0F : static_cast<float>(random.uniform(1, 100));
    const std::vector<float> o = random.normals(head_dim);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      state.o.data()[i * head_dim + d] = empty ? 0.0F : o[static_cast<std::size_t>(d)];
    }
  }
  return state;
}

std::vector<float> numbers(const SoftmaxState& state) {
  std::vector<float> out(state.o.data(), state.o.data() + state.o.size());
  out.insert(out.end(), state.m.data(), state.m.data() + state.m.size());
  out.insert(out.end(), state.l.data(), state.l.data() + state.l.size());
  return out;
}

reference::State row(const SoftmaxState& state, std::int64_t i) {
  const std::int64_t head_dim = state.o.dim(2);
  return {state.m.data()[i],
          state.l.data()[i],
          {state.o.data() + i * head_dim, state.o.data() + (i + 1) * head_dim}};
}

TEST_P(SoftmaxStates, MergeMatchesTheReference) {
  Random random(base_seed());
  SoftmaxState a = random_state(random, 7, 3, 21);
  SoftmaxState b = random_state(random, 7, 3, 21);
  const SoftmaxState both = merged(a, b);
  for (std::int64_t i = 0; i < 21; ++i) {
    const reference::State got = row(both, i);
    const reference::State want = reference::merge(row(a, i), row(b, i));
    EXPECT_EQ(got.m, want.m);
    EXPECT_NEAR(got.l, want.l, 1e-5 * std::fabs(want.l));
    for (std::size_t d = 0; d < 21; ++d) EXPECT_NEAR(got.o[d], want.o[d], 1e-5);
  }
}

TEST_P(SoftmaxStates, EmptyIsTheIdentityBitForBit) {
  Random random(base_seed());
  SoftmaxState a = random_state(random, 5, 4, 16);
  const SoftmaxState empty = cleared(a);
  EXPECT_EQ(numbers(merged(a, empty)), numbers(a));
  EXPECT_EQ(numbers(merged(empty, a)), numbers(a));
}

TEST_P(SoftmaxStates, MergeIsAssociativeAndCommutative) {
  Random random(base_seed());
  for (int i = 0; i < 20 * intensity(); ++i) {
    SoftmaxState a = random_state(random, 3, 2, 18);
    SoftmaxState b = random_state(random, 3, 2, 18);
    SoftmaxState c = random_state(random, 3, 2, 18);
    const SoftmaxState ab_c = merged(merged(a, b), c);
    const SoftmaxState cb_a = merged(merged(c, b), a);
    EXPECT_TRUE(close(numbers(ab_c), numbers(cb_a), operator_tolerance(DType::kF32)));
  }
}

// Four owners of keys, one of whom this is; some have none.
TEST_P(SoftmaxStates, ScalesOfAllPartsAreThoseOfTheWhole) {
  Random random(base_seed());
  constexpr std::int64_t kParts = 4, kTokens = 5, kHeads = 3, kHeadDim = 12;
  std::vector<SoftmaxState> parts;
  std::vector<float> scales;  // [parts][m, l][tokens][heads]
  for (std::int64_t i = 0; i < kParts; ++i) {
    parts.push_back(random_state(random, kTokens, kHeads, kHeadDim));
    const SoftmaxState& part = parts.back();
    scales.insert(scales.end(), part.m.data(), part.m.data() + part.m.size());
    scales.insert(scales.end(), part.l.data(), part.l.data() + part.l.size());
  }
  const Memory there(stream(), scales);
  std::vector<double> sum(static_cast<std::size_t>(parts.front().o.size()));
  for (std::int64_t own = 0; own < kParts; ++own) {
    const StateThere state(stream(), parts[static_cast<std::size_t>(own)]);
    const auto of = [&](std::int64_t which) {
      return TensorView<const float, 3>(there.data() + which * kTokens * kHeads,
                                        {kParts, kTokens, kHeads},
                                        {2 * kTokens * kHeads, kHeads, 1});
    };
    merge_scales(stream(), {.state = state.view(), .m = of(0), .l = of(1), .own = own});
    const std::vector<float> out = finished(state.state(), {});
    for (std::size_t i = 0; i < out.size(); ++i) sum[i] += out[i];
  }
  for (std::int64_t i = 0; i < kTokens * kHeads; ++i) {
    reference::State whole = row(parts.front(), i);
    for (std::size_t part = 1; part < parts.size(); ++part)
      whole = reference::merge(whole, row(parts[part], i));
    for (std::size_t d = 0; d < static_cast<std::size_t>(kHeadDim); ++d) {
      const double want = whole.l == 0 ? 0 : whole.o[d] / whole.l;
      EXPECT_NEAR(sum[static_cast<std::size_t>(i * kHeadDim) + d], want, 1e-5) << "state " << i;
    }
  }
}

TEST_P(SoftmaxStates, FinishDividesAndAddsTheSinkOnce) {
  SoftmaxState state(1, 3, 8);
  const float m[] = {2.0F, kMinusInfinity, -30.0F};
  const float l[] = {4.0F, 0.0F, 2.0F};
  for (std::int64_t h = 0; h < 3; ++h) {
    state.m.data()[h] = m[h];
    state.l.data()[h] = l[h];
    for (std::int64_t d = 0; d < 8; ++d) {
      state.o.data()[h * 8 + d] = h == 1 ? 0.0F : static_cast<float>(d + 1);
    }
  }
  std::vector<float> out = finished(state, {});
  EXPECT_FLOAT_EQ(out[3], 1.0F);
  EXPECT_EQ(out[11], 0.0F);
  EXPECT_FLOAT_EQ(out[19], 2.0F);
  out = finished(state, {3.0F, 0.0F, 0.0F});
  EXPECT_NEAR(out[3], 4.0 / (4.0 + std::exp(1.0)), 1e-6);
  EXPECT_EQ(out[11], 0.0F);
  EXPECT_NEAR(out[19], 4.0 * std::exp(-30.0) / (2 * std::exp(-30.0) + 1), 1e-18);
  out = finished(state, std::vector<float>(3, kMinusInfinity));
  EXPECT_FLOAT_EQ(out[3], 1.0F);
}

TEST(SoftmaxStateArguments, BadShapesAreRefused) {
  SoftmaxState a(2, 3, 8);
  SoftmaxState b(2, 4, 8);
  EXPECT_THROW(merge(StreamRef::cpu(), a.view(), b.view()), Error);
  std::vector<float> out(48);
  const TensorView<float, 3> view(out.data(), {2, 3, 8});
  const std::vector<float> sinks(2);
  EXPECT_THROW(finish_attention(StreamRef::cpu(), {a.view(), sinks, view}), Error);
  SoftmaxStateView broken = a.view();
  broken.m = b.m.view();
  EXPECT_THROW(clear(StreamRef::cpu(), broken), Error);
}

}  // namespace
}  // namespace longhaul::test
