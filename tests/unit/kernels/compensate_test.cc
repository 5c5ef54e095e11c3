// One key for all that a window has left behind: against double precision in every cache type,
// however queries come together, and equal to dense attention where all keys that are gone are
// equal.
#include "kernels/compensate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention.h"
#include "kernels/kv_append.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kTokens = 70;
constexpr std::int64_t kDim = 32;
constexpr std::int64_t kGroup = 2;
constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kSink = 3;
constexpr std::int64_t kRecent = 20;
constexpr float kScale = 0.2F;

// One head's cache and a query for each of its tokens.
struct Problem {
  explicit Problem(KvType type, bool equal_keys = false) : shape{kBlock, kDim, type, type} {
    Random random(base_seed() + static_cast<std::uint64_t>(type));
    k = random.normals(kTokens * kDim);
    v = random.normals(kTokens * kDim);
    for (std::int64_t t = kSink; equal_keys && t < kTokens; ++t)
      std::copy_n(k.begin(), kDim, k.begin() + t * kDim);
    q = random.normals(kTokens * kGroup * kDim);
    for (std::int64_t first = 0; first < kTokens; first += kBlock) {
      const std::int64_t n = std::min(kBlock, kTokens - first);
      std::byte* to = memory.emplace_back(shape.bytes()).data();
      const TensorView<float, 2> rows_k(k.data() + first * kDim, {n, kDim});
      const TensorView<float, 2> rows_v(v.data() + first * kDim, {n, kDim});
      const KvAppendItem item{.k = rows_k, .v = rows_v, .blocks = {&to, 1}};
      kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
      kv_read_k(shape, to, 0, rows_k);
      kv_read_v(shape, to, 0, rows_v);
      blocks.push_back({.data = to, .first_position = first, .n_tokens = n});
    }
    for (std::int64_t t = 0; t < kTokens; ++t) positions.push_back(t);
  }

  // Of queries [0, kTokens), so many at a time: [kTokens, kGroup, kDim].
  std::vector<float> attended(std::int64_t at_once) {
    SoftmaxState state(kTokens, kGroup, kDim);
    clear(StreamRef::cpu(), state.view());
    const TensorView<const float, 3> queries(q.data(), {kTokens, kGroup, kDim});
    GoneSums sums;
    for (std::int64_t begin = 0; begin < kTokens; begin += at_once) {
      const Extent rows{begin, std::min(kTokens, begin + at_once)};
      const auto at = std::span(positions).subspan(static_cast<std::size_t>(rows.begin),
                                                   static_cast<std::size_t>(rows.size()));
      const CompensateItem item{.sums = &sums,
                                .blocks = blocks,
                                .sink = kSink,
                                .recent = kRecent,
                                .q = queries.slice(0, rows),
                                .q_positions = at,
                                .state = state.view().tokens(rows),
                                .next_position = rows.end};
      compensate({.shape = shape, .sm_scale = kScale, .items = {&item, 1}});
      const AttentionItem window{.q = queries.slice(0, rows),
                                 .q_positions = at,
                                 .blocks = blocks,
                                 .mask = {.sink = kSink, .recent = kRecent},
                                 .state = state.view().tokens(rows)};
      attention(StreamRef::cpu(), {.shape = shape, .sm_scale = kScale, .items = {&window, 1}});
    }
    EXPECT_EQ(sums.n, kTokens - kRecent - kSink + 1);
    std::vector<float> out(q.size());
    finish_attention(StreamRef::cpu(),
                     {.state = state.view(),
                      .sink_logits = {},
                      .out = TensorView<float, 3>(out.data(), {kTokens, kGroup, kDim})});
    return out;
  }

  // By the definition, query after query.
  std::vector<double> reference() const {
    std::vector<double> out;
    for (std::int64_t i = 0; i < kTokens * kGroup; ++i) {
      const std::int64_t position = i / kGroup;
      std::vector<double> mean_k(kDim);
      std::vector<double> mean_v(kDim);
      std::vector<double> sum(kDim);
      double denominator = 0;
      double n_gone = 0;
      const auto add = [&](const double* key, const double* value, double weight) {
        double score = 0;
        for (std::int64_t d = 0; d < kDim; ++d)
          score += static_cast<double>(q[static_cast<std::size_t>(i * kDim + d)]) * key[d];
        const double e = weight * std::exp(static_cast<double>(kScale) * score);
        denominator += e;
        for (std::size_t d = 0; d < kDim; ++d) sum[d] += e * value[d];
      };
      for (std::int64_t t = 0; t <= position; ++t) {
        const std::vector<double> key(k.begin() + t * kDim, k.begin() + (t + 1) * kDim);
        const std::vector<double> value(v.begin() + t * kDim, v.begin() + (t + 1) * kDim);
        if (t < kSink || position - t < kRecent) {
          add(key.data(), value.data(), 1);
          continue;
        }
        ++n_gone;
        for (std::size_t d = 0; d < kDim; ++d) mean_k[d] += key[d], mean_v[d] += value[d];
      }
      for (std::size_t d = 0; d < kDim && n_gone > 0; ++d) mean_k[d] /= n_gone, mean_v[d] /= n_gone;
      if (n_gone > 0) add(mean_k.data(), mean_v.data(), n_gone);
      for (const double x : sum) out.push_back(x / denominator);
    }
    return out;
  }

  KvBlockShape shape;
  std::vector<float> k;  // as the blocks hold them
  std::vector<float> v;
  std::vector<float> q;
  std::vector<std::vector<std::byte>> memory;
  std::vector<KvBlockRef> blocks;
  std::vector<std::int64_t> positions;
};

TEST(Compensate, MatchesTheDefinitionInEveryType) {
  for (const KvType type : kKvTypes) {
    Problem problem(type);
    EXPECT_TRUE(close(problem.attended(kTokens), problem.reference(),
                      attention_tolerance(type, Device::kCpu)))
        << name_of(type);
  }
}

TEST(Compensate, DoesNotDependOnHowQueriesComeTogether) {
  Problem problem(KvType::kF32);
  const std::vector<float> want = problem.attended(kTokens);
  for (const std::int64_t at_once : {1, 7, 33}) {
    const std::vector<float> got = problem.attended(at_once);
    EXPECT_TRUE(close(got, std::span<const float>(want), operator_tolerance(DType::kF32)));
  }
}

TEST(Compensate, EqualKeysAreAttendedToAsIfTheyWereThere) {
  Problem problem(KvType::kF32, /*equal_keys=*/true);
  reference::AttentionCase dense{.n_heads = kGroup,
                                 .n_kv_heads = 1,
                                 .head_dim = kDim,
                                 .q = {problem.q.begin(), problem.q.end()},
                                 .q_positions = problem.positions,
                                 .k = {problem.k.begin(), problem.k.end()},
                                 .v = {problem.v.begin(), problem.v.end()},
                                 .k_positions = problem.positions,
                                 .masks = {},
                                 .sink_logits = {},
                                 .sm_scale = static_cast<double>(kScale)};
  EXPECT_TRUE(close(problem.attended(kTokens), reference::attention(dense).out,
                    operator_tolerance(DType::kF32)));
}

}  // namespace
}  // namespace longhaul::test
