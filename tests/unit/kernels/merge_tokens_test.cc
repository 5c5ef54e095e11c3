// Merged tokens: equal to the published running sums, whatever is computed together; and each
// query's own token, equal to attention to a block that holds it.
#include "kernels/merge_tokens.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_append.h"
#include "kernels/own_keys.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/tolerance.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kRows = 150;
constexpr std::int64_t kMergeHeads = 3;
constexpr std::int64_t kMergeDim = 16;

// Tokens of one sequence, of which a head merges about so many.
struct MergeProblem {
  MergeProblem(double share, std::int64_t window_, double init_val_)
      : window(window_), init_val(init_val_) {
    Random random(base_seed() + static_cast<std::uint64_t>(100 * share));
    k = random.normals(kRows * kMergeHeads * kMergeDim);
    v = random.normals(kRows * kMergeHeads * kMergeDim);
    for (std::int64_t i = 0; i < kRows * kMergeHeads; ++i) {
      weights.push_back(static_cast<float>(random.uniform(0.1, 1)));
      const double away = random.uniform(0.1, 1);
      k[static_cast<std::size_t>((i + 1) * kMergeDim - 1)] =
          static_cast<float>(random.chance(share) ? init_val + away : init_val - away);
    }
  }
  // k and v after so many tokens at a time, of two sequences that are alike in each call.
  std::vector<float> merged(StreamRef stream, std::int64_t at_once) const {
    const Memory<float> old_k(stream, k);
    const Memory<float> old_v(stream, v);
    const Memory<float> w(stream, weights);
    const std::array<Memory<float>, 2> new_k = {Memory<float>(stream, k), Memory<float>(stream, k)};
    const std::array<Memory<float>, 2> new_v = {Memory<float>(stream, v), Memory<float>(stream, v)};
    const auto rows_of = [](const Memory<float>& x, Extent rows) {
      return TensorView<float, 3>(x.data(), {kRows, kMergeHeads, kMergeDim}).slice(0, rows);
    };
    const TensorView<const float, 2> weight_rows(w.data(), {kRows, kMergeHeads});
    for (std::int64_t begin = 0; begin < kRows; begin += at_once) {
      const Extent rows{begin, std::min(kRows, begin + at_once)};
      const Extent before{std::max<std::int64_t>(0, begin - window + 1), begin};
      std::vector<MergeTokensItem> items;
      for (std::size_t i = 0; i < new_k.size(); ++i) {
        items.push_back({.first_position = begin,
                         .before = {.k = rows_of(old_k, before),
                                    .v = rows_of(old_v, before),
                                    .weights = weight_rows.slice(0, before)},
                         .k = rows_of(new_k[i], rows),
                         .v = rows_of(new_v[i], rows),
                         .weights = weight_rows.slice(0, rows)});
      }
      merge_tokens(stream, {.window = window, .init_val = init_val, .items = items});
    }
    std::vector<float> both = new_k[0].values();
    const std::vector<float> v_values = new_v[0].values();
    both.insert(both.end(), v_values.begin(), v_values.end());
    EXPECT_EQ(new_k[1].values(), new_k[0].values());
    EXPECT_EQ(new_v[1].values(), v_values);
    return both;
  }

  // As the published kernel: running sums, of which the token goes that leaves the window.
  std::vector<double> by_running_sums() const {
    const std::size_t n = k.size();
    std::vector<double> out(2 * n);
    for (std::int64_t head = 0; head < kMergeHeads; ++head) {
      std::vector<double> sums(2 * kMergeDim + 1);
      std::deque<std::vector<double>> ring;
      std::int64_t length = 0;
      for (std::int64_t t = 0; t < kRows; ++t) {
        const auto first = static_cast<std::size_t>((t * kMergeHeads + head) * kMergeDim);
        const double b =
            t > 0 && static_cast<double>(k[first + kMergeDim - 1]) - init_val > 0 ? 1 : 0;
        const auto w =
            static_cast<double>(weights[static_cast<std::size_t>(t * kMergeHeads + head)]);
        std::vector<double> token;
        for (std::size_t d = 0; d < kMergeDim; ++d)
          token.push_back(d + 1 < kMergeDim ? w * static_cast<double>(k[first + d]) : 0);
        for (std::size_t d = 0; d < kMergeDim; ++d)
          token.push_back(w * static_cast<double>(v[first + d]));
        token.push_back(w);
        length = static_cast<std::int64_t>(b) * length + 1;
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const double oldest = length > window ? ring.front()[i] : 0;
          sums[i] = sums[i] * b - oldest + token[i];
        }
        ring.push_back(token);
        if (static_cast<std::int64_t>(ring.size()) > window) ring.pop_front();
        for (std::size_t d = 0; d < kMergeDim; ++d) {
          out[first + d] = sums[d] / sums.back();
          out[n + first + d] = sums[kMergeDim + d] / sums.back();
        }
      }
    }
    return out;
  }

  std::int64_t window;
  double init_val;
  std::vector<float> k, v, weights;
};

class MergeTokens : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(MergeTokens);

TEST_P(MergeTokens, AreThePublishedRunningSums) {
  for (const double share : {0.3, 0.6, 0.95}) {
    for (const std::int64_t window : {12, 3, 1}) {
      MergeProblem problem(share, window, 5);
      EXPECT_TRUE(close(problem.merged(stream(), kRows), problem.by_running_sums(),
                        operator_tolerance(DType::kF32)))
          << share << " merge, window of " << window;
    }
  }
}

TEST_P(MergeTokens, DoNotDependOnHowTokensComeTogetherNorOnTheDevice) {
  for (const double share : {0.5, 0.95}) {
    const MergeProblem problem(share, 12, 0.5);
    const std::vector<float> whole = problem.merged(StreamRef::cpu(), kRows);
    for (const std::int64_t at_once : {std::int64_t{1}, std::int64_t{2}, std::int64_t{7}, kRows})
      EXPECT_EQ(problem.merged(stream(), at_once), whole);
  }
}

TEST_P(MergeTokens, WhereNoneMergesOnlyTheLastElementOfKeysGoes) {
  const MergeProblem problem(0, 12, 5);
  std::vector<float> want = problem.k;
  for (std::size_t i = kMergeDim - 1; i < want.size(); i += kMergeDim) want[i] = 0;
  want.insert(want.end(), problem.v.begin(), problem.v.end());
  EXPECT_EQ(problem.merged(stream(), kRows), want);
}

TEST_P(MergeTokens, OtherThanTheFirstMergeAboveTheInitialValue) {
  EXPECT_FALSE(merges_into_slot(9, 5, 0));
  EXPECT_TRUE(merges_into_slot(5.03125F, 5, 1));  // the next bf16
  EXPECT_FALSE(merges_into_slot(5, 5, 1));
  EXPECT_FALSE(merges_into_slot(-9, 5, 1));
  // Three tokens of two heads, of head_dim 2.
  const Memory<float> k(stream(), std::vector<float>{0, 9, 0, -9, 0, 5.03125F, 0, 5, 9, 4, 0, 6});
  const std::vector<std::int64_t> positions = {0, 1, 2};
  std::vector<std::uint8_t> merges(6);
  merge_decisions(stream(), {.init_val = 5,
                             .k = TensorView<const float, 3>(k.data(), {3, 2, 2}),
                             .positions = positions,
                             .merges = merges});
  EXPECT_EQ(merges, (std::vector<std::uint8_t>{0, 0, 1, 0, 0, 1}));
}

TEST_P(MergeTokens, WeightsAreMeansOverTheGroup) {
  // Two query heads of one KV head, head_dim 2.
  const Memory<float> q(stream(), std::vector<float>{0, 1, 0, 2, 0, -9, 0, -3});
  const Memory<float> weights(stream(), 2);
  merge_weights(stream(), {.init_val = 5,
                           .q = TensorView<const float, 3>(q.data(), {2, 2, 2}),
                           .weights = {weights.data(), {2, 1}}});
  const std::vector<float> got = weights.values();
  EXPECT_NEAR(got.at(0), 1 / (1 + std::exp(-6.5)) + 0.0078125, 1e-6);
  EXPECT_NEAR(got.at(1), 1 / (1 + std::exp(1.0)) + 0.0078125, 1e-6);
}

TEST_P(MergeTokens, LastElementsBecomeZero) {
  const Memory<float> x(stream(), std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  // The second head of two, of three rows.
  zero_last_elements(stream(), TensorView<float, 3>(x.data(), {3, 2, 2}).slice(1, {1, 2}));
  EXPECT_EQ(x.values(), (std::vector<float>{1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11, 0}));
}

TEST_P(MergeTokens, TokensBeforeTheNewOnesMustBeThere) {
  const MergeProblem problem(0.5, 12, 5);
  const Memory<float> x(stream(), problem.k);
  const TensorView<float, 3> rows(x.data(), {1, kMergeHeads, kMergeDim});
  const MergeTokensItem item{.first_position = 1,
                             .before = {},
                             .k = rows,
                             .v = rows,
                             .weights = {x.data(), {1, kMergeHeads}}};
  EXPECT_THROW(merge_tokens(stream(), {.items = {&item, 1}}), Error);
}

class OwnKeys : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(OwnKeys);

// Beside other keys, or none.
TEST_P(OwnKeys, AreAttendedToAsIfABlockHeldThem) {
  constexpr std::int64_t kGroup = 2;
  constexpr float kScale = 0.25F;
  for (const KvType type : kPlainKvTypes) {
    const KvBlockShape shape{16, kMergeDim, type, type};
    Random random(base_seed());
    const Memory<float> k(stream(), random.normals(kRows * kMergeHeads * kMergeDim));
    const Memory<float> v(stream(), random.normals(kRows * kMergeHeads * kMergeDim));
    const Memory<float> q(stream(), random.normals(kRows * kMergeHeads * kGroup * kMergeDim));
    const TensorView<const float, 3> keys(k.data(), {kRows, kMergeHeads, kMergeDim});
    const TensorView<const float, 3> values(v.data(), {kRows, kMergeHeads, kMergeDim});
    const TensorView<const float, 3> queries(q.data(), {kRows, kMergeHeads * kGroup, kMergeDim});
    const SoftmaxState empty(kRows, kMergeHeads * kGroup, kMergeDim);
    const StateThere got(stream(), empty);
    const StateThere want(stream(), empty);
    for (const StateThere* state : {&got, &want}) clear(stream(), state->view());
    // A block for each row and head.
    const Memory<std::byte> memory(stream(),
                                   kRows * kMergeHeads * static_cast<std::int64_t>(shape.bytes()));
    std::vector<std::byte*> blocks;
    for (std::int64_t i = 0; i < kRows * kMergeHeads; ++i)
      blocks.push_back(memory.data() + i * static_cast<std::int64_t>(shape.bytes()));
    std::vector<KvAppendItem> appended;
    std::vector<KvBlockRef> refs;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t head = 0; head < kMergeHeads; ++head) {
        const auto i = static_cast<std::size_t>(row * kMergeHeads + head);
        appended.push_back({.k = {keys[row][head].data(), {1, kMergeDim}},
                            .v = {values[row][head].data(), {1, kMergeDim}},
                            .blocks = std::span(blocks).subspan(i, 1)});
        refs.push_back({.data = blocks[i], .n_tokens = 1});
      }
    }
    kv_append(stream(), {.shape = shape, .items = appended});
    const std::int64_t position = 0;
    const auto attend = [&](const StateThere& state, std::int64_t first, std::int64_t step,
                            std::int64_t back) {
      std::vector<AttentionItem> items;
      for (std::int64_t row = first; row < kRows; row += step) {
        for (std::int64_t head = 0; head < kMergeHeads; ++head) {
          const Extent heads{head * kGroup, (head + 1) * kGroup};
          const auto block = static_cast<std::size_t>((row - back) * kMergeHeads + head);
          items.push_back({.q = queries.slice(0, {row, row + 1}).slice(1, heads),
                           .q_positions = {&position, 1},
                           .blocks = std::span(refs).subspan(block, 1),
                           .state = state.view().tokens({row, row + 1}).heads(heads)});
        }
      }
      attention(stream(), {.shape = shape, .sm_scale = kScale, .items = items});
    };
    // Every other query has seen another key before.
    for (const StateThere* state : {&got, &want}) attend(*state, 1, 2, 1);
    attend(want, 0, 1, 0);
    add_own_keys(stream(), {.shape = shape,
                            .sm_scale = kScale,
                            .q = queries,
                            .k = keys,
                            .v = values,
                            .state = got.view()});
    const auto outputs = [&](const StateThere& state) {
      finish_attention(stream(), {.state = state.view(), .out = state.view().o});
      const SoftmaxState out = state.state();
      return std::vector<float>(out.o.data(), out.o.data() + out.o.size());
    };
    EXPECT_TRUE(close(outputs(got), outputs(want), attention_tolerance(type, stream().device())))
        << static_cast<int>(type);
  }
}

}  // namespace
}  // namespace longhaul::test
