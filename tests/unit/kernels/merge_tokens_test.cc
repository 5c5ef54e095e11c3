// Merged tokens: equal to the published running sums, whatever is computed together; and each
// query's own token, equal to attention to a block that holds it.
#include "kernels/merge_tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_append.h"
#include "kernels/own_keys.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/tolerance.h"

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
  TensorView<float, 3> view(std::vector<float>& x) const {
    return {x.data(), {kRows, kMergeHeads, kMergeDim}};
  }
  TensorView<const float, 2> weight_rows(Extent rows) const {
    return {weights.data() + rows.begin * kMergeHeads, {rows.size(), kMergeHeads}};
  }

  // k and v after so many tokens at a time.
  std::vector<float> merged(std::int64_t at_once) {
    std::vector<float> new_k = k;
    std::vector<float> new_v = v;
    for (std::int64_t begin = 0; begin < kRows; begin += at_once) {
      const Extent rows{begin, std::min(kRows, begin + at_once)};
      const Extent before{std::max<std::int64_t>(0, begin - window + 1), begin};
      merge_tokens({.window = window,
                    .init_val = init_val,
                    .first_position = begin,
                    .before = {.k = view(k).slice(0, before),
                               .v = view(v).slice(0, before),
                               .weights = weight_rows(before)},
                    .k = view(new_k).slice(0, rows),
                    .v = view(new_v).slice(0, rows),
                    .weights = weight_rows(rows)});
    }
    new_k.insert(new_k.end(), new_v.begin(), new_v.end());
    return new_k;
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

TEST(MergeTokens, AreThePublishedRunningSums) {
  for (const double share : {0.3, 0.6, 0.95}) {
    for (const std::int64_t window : {12, 3, 1}) {
      MergeProblem problem(share, window, 5);
      EXPECT_TRUE(
          close(problem.merged(kRows), problem.by_running_sums(), operator_tolerance(DType::kF32)))
          << share << " merge, window of " << window;
    }
  }
}

TEST(MergeTokens, DoNotDependOnHowTokensComeTogether) {
  for (const double share : {0.5, 0.95}) {
    MergeProblem problem(share, 12, 0.5);
    const std::vector<float> whole = problem.merged(kRows);
    for (const std::int64_t at_once : {1, 2, 7, 64}) EXPECT_EQ(problem.merged(at_once), whole);
  }
}

TEST(MergeTokens, WhereNoneMergesOnlyTheLastElementOfKeysGoes) {
  MergeProblem problem(0, 12, 5);
  std::vector<float> want = problem.k;
  for (std::size_t i = kMergeDim - 1; i < want.size(); i += kMergeDim) want[i] = 0;
  want.insert(want.end(), problem.v.begin(), problem.v.end());
  EXPECT_EQ(problem.merged(kRows), want);
}

TEST(MergeTokens, TheFirstTokenNeverMergesAndOthersAboveTheInitialValue) {
  EXPECT_FALSE(merges_into_slot(9, 5, 0));
  EXPECT_TRUE(merges_into_slot(5.03125F, 5, 1));  // the next bf16
  EXPECT_FALSE(merges_into_slot(5, 5, 1));
  EXPECT_FALSE(merges_into_slot(-9, 5, 1));
}

TEST(MergeTokens, WeightsAreMeansOverTheGroup) {
  // Two query heads of one KV head, head_dim 2.
  const std::vector<float> q = {0, 1, 0, 2, 0, -9, 0, -3};
  const std::vector<float> got = merge_weights({q.data(), {2, 2, 2}}, 1, 5);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_NEAR(got[0], 1 / (1 + std::exp(-6.5)) + 0.0078125, 1e-6);
  EXPECT_NEAR(got[1], 1 / (1 + std::exp(1.0)) + 0.0078125, 1e-6);
}

// Beside other keys, or none.
TEST(OwnKeys, AreAttendedToAsIfABlockHeldThem) {
  constexpr std::int64_t kGroup = 2;
  constexpr float kScale = 0.25F;
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8, KvType::kInt4}) {
    const KvBlockShape shape{16, kMergeDim, type, type};
    Random random(base_seed());
    const std::vector<float> k = random.normals(kRows * kMergeHeads * kMergeDim);
    const std::vector<float> v = random.normals(kRows * kMergeHeads * kMergeDim);
    const std::vector<float> q = random.normals(kRows * kMergeHeads * kGroup * kMergeDim);
    const TensorView<const float, 3> keys(k.data(), {kRows, kMergeHeads, kMergeDim});
    const TensorView<const float, 3> values(v.data(), {kRows, kMergeHeads, kMergeDim});
    const TensorView<const float, 3> queries(q.data(), {kRows, kMergeHeads * kGroup, kMergeDim});
    SoftmaxState got(kRows, kMergeHeads * kGroup, kMergeDim);
    SoftmaxState want(kRows, kMergeHeads * kGroup, kMergeDim);
    for (SoftmaxState* state : {&got, &want}) clear(StreamRef::cpu(), state->view());
    const auto attend = [&](std::int64_t row, std::int64_t head, std::int64_t of,
                            SoftmaxState& state) {
      std::vector<std::byte> block(shape.bytes());
      std::byte* data = block.data();
      const KvAppendItem item{.k = {keys[of][head].data(), {1, kMergeDim}},
                              .v = {values[of][head].data(), {1, kMergeDim}},
                              .blocks = {&data, 1}};
      kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
      const KvBlockRef ref{.data = data, .n_tokens = 1};
      const std::int64_t position = 0;
      const Extent heads{head * kGroup, (head + 1) * kGroup};
      const AttentionItem work{.q = queries.slice(0, {row, row + 1}).slice(1, heads),
                               .q_positions = {&position, 1},
                               .blocks = {&ref, 1},
                               .state = state.view().tokens({row, row + 1}).heads(heads)};
      attention(StreamRef::cpu(), {.shape = shape, .sm_scale = kScale, .items = {&work, 1}});
    };
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t head = 0; head < kMergeHeads; ++head) {
        // Every other query has seen another key before.
        for (SoftmaxState* state : {&got, &want}) {
          if (row % 2 == 1) attend(row, head, row - 1, *state);
        }
        attend(row, head, row, want);
      }
    }
    add_own_keys({.shape = shape,
                  .sm_scale = kScale,
                  .q = queries,
                  .k = keys,
                  .v = values,
                  .state = got.view()});
    for (SoftmaxState* state : {&got, &want}) {
      finish_attention(StreamRef::cpu(), {.state = state->view(), .out = state->o.view()});
    }
    const auto n = static_cast<std::size_t>(got.o.size());
    EXPECT_TRUE(close(std::span<const float>(got.o.data(), n),
                      std::span<const float>(want.o.data(), n),
                      attention_tolerance(type, Device::kCpu)))
        << static_cast<int>(type);
  }
}

}  // namespace
}  // namespace longhaul::test
