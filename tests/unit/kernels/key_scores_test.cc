// The share of attention that keys get: against double precision, in every cache type, for keys in
// one place and in several.
#include "kernels/key_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/kv_append.h"
#include "kernels/reference/kv_read.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/cached_keys.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kScoredDim = 40;
constexpr std::int64_t kScoringHeads = 3;
constexpr float kScoreScale = 0.4F;

// [gqa_group, n_tokens]; where it is said who sees the tokens, of those that a head sees.
std::vector<double> want_masses(const CachedKeys& blocks, const TensorView<const float, 3>& q,
                                std::span<const std::int64_t> positions, std::int64_t n_tokens,
                                std::span<const SeenBy> seen_by = {}) {
  std::vector<std::vector<float>> keys;
  for (const KvBlockRef& block : blocks.refs) {
    for (std::int64_t slot = 0; slot < block.n_tokens; ++slot) {
      keys.emplace_back(kScoredDim);
      kv_read_k(blocks.shape, block.data, slot, {keys.back().data(), {1, kScoredDim}});
    }
  }
  std::vector<double> masses(static_cast<std::size_t>(kScoringHeads * n_tokens));
  for (std::int64_t query = 0; query < q.dim(0); ++query) {
    for (std::int64_t head = 0; head < kScoringHeads; ++head) {
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t j = 0; j <= positions[static_cast<std::size_t>(query)]; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < kScoredDim; ++d)
          score +=
              static_cast<double>(q[query][head][d]) *
              static_cast<double>(keys[static_cast<std::size_t>(j)][static_cast<std::size_t>(d)]);
        const bool is_seen =
            seen_by.empty() || (seen_by[static_cast<std::size_t>(j)] >> head & 1) != 0;
        weights.push_back(is_seen ? std::exp(score * static_cast<double>(kScoreScale)) : 0);
        sum += weights.back();
      }
      for (std::size_t j = 0; j < weights.size(); ++j)
        masses[static_cast<std::size_t>(head * n_tokens) + j] += weights[j] / sum;
    }
  }
  return masses;
}

std::vector<ExpSum> merged_sums(const KeyScores& a, const KeyScores& b) {
  std::vector<ExpSum> all;
  for (std::size_t i = 0; i < a.sums.size(); ++i) all.push_back(merged(a.sums[i], b.sums[i]));
  return all;
}

class KeyScoresTest : public EachDevice {};

TEST_P(KeyScoresTest, EqualDoublePrecisionWhereverKeysLie) {
  for (const KvType type : kPlainKvTypes) {
    Random random(base_seed() + static_cast<std::uint64_t>(type));
    constexpr std::int64_t kKeys = 71;
    constexpr std::int64_t kQueries = 5;
    const CachedKeys blocks = random_keys(
        random, stream(),
        {.block_size = 16, .head_dim = kScoredDim, .k_type = type, .v_type = type}, kKeys);
    Tensor<float, 3> q({kQueries, kScoringHeads, kScoredDim});
    std::ranges::copy(random.normals(q.view().size()), q.data());
    const std::vector<std::int64_t> positions = {66, 67, 68, 69, 70};
    const auto args_of = [&](std::span<const KvBlockRef> refs) {
      return KeyScoresArgs{.shape = blocks.shape,
                           .sm_scale = kScoreScale,
                           .q = q.view(),
                           .q_positions = positions,
                           .blocks = refs};
    };
    const std::vector<double> want = want_masses(blocks, q.view(), positions, kKeys);
    const KeyScores whole = score_keys(stream(), args_of(blocks.refs_there));
    const std::vector<float> got = key_masses(stream(), whole, whole.sums);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(static_cast<double>(got[i]), want[i], 2e-5 * (1 + want[i])) << i;

    // Of the whole group, however queries come together.
    std::vector<double> sums(kKeys);
    add_key_masses(stream(), whole, whole.sums, sums);
    std::vector<double> one_by_one(kKeys);
    for (std::int64_t query = 0; query < kQueries; ++query) {
      KeyScoresArgs args = args_of(blocks.refs_there);
      args.q = q.view().slice(0, {query, query + 1});
      args.q_positions = std::span(positions).subspan(static_cast<std::size_t>(query), 1);
      const KeyScores alone = score_keys(stream(), args);
      add_key_masses(stream(), alone, alone.sums, one_by_one);
    }
    EXPECT_EQ(sums, one_by_one);
    for (std::size_t j = 0; j < sums.size(); ++j) {
      double of_group = 0;
      for (std::size_t head = 0; head < kScoringHeads; ++head) of_group += want[head * kKeys + j];
      EXPECT_NEAR(sums[j], of_group, 2e-5 * (1 + of_group)) << j;
    }

    // Of each query's last keys alone.
    const std::vector<std::int64_t> first_keys = {60, 0, 68, 16, 71};
    std::vector<double> last(kKeys);
    add_key_masses(stream(), whole, whole.sums, last, first_keys);
    std::vector<double> want_last(kKeys);
    for (std::size_t query = 0; query < kQueries; ++query) {
      KeyScoresArgs args = args_of(blocks.refs_there);
      const auto row = static_cast<std::int64_t>(query);
      args.q = q.view().slice(0, {row, row + 1});
      args.q_positions = std::span(positions).subspan(query, 1);
      const KeyScores alone = score_keys(stream(), args);
      std::vector<double> of_query(kKeys);
      add_key_masses(stream(), alone, alone.sums, of_query);
      for (auto j = static_cast<std::size_t>(first_keys[query]); j < kKeys; ++j)
        want_last[j] += of_query[j];
    }
    for (std::size_t j = 0; j < kKeys; ++j) EXPECT_DOUBLE_EQ(last[j], want_last[j]) << j;

    const std::span<const KvBlockRef> refs = blocks.refs_there;
    const KeyScores first = score_keys(stream(), args_of(refs.first(2)));
    const KeyScores rest = score_keys(stream(), args_of(refs.subspan(2)));
    const auto all = merged_sums(first, rest);
    const std::vector<float> in_first = key_masses(stream(), first, all);
    const std::vector<float> in_rest = key_masses(stream(), rest, all);
    for (std::int64_t head = 0; head < kScoringHeads; ++head) {
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const float here = j < 32 ? in_first[static_cast<std::size_t>(head * 32 + j)]
                                  : in_rest[static_cast<std::size_t>(head * (kKeys - 32) + j - 32)];
        EXPECT_FLOAT_EQ(here, got[static_cast<std::size_t>(head * kKeys + j)]);
      }
    }
  }
}

// More queries and keys than a GPU takes at a time; some queries see no key.
TEST_P(KeyScoresTest, OfManyQueriesAndKeysEqualDoublePrecision) {
  Random random(base_seed() + 77);
  constexpr std::int64_t kKeys = 301;
  constexpr std::int64_t kQueries = 37;
  const CachedKeys blocks = random_keys(
      random, stream(),
      {.block_size = 96, .head_dim = kScoredDim, .k_type = KvType::kBf16, .v_type = KvType::kInt8},
      kKeys);
  Tensor<float, 3> q({kQueries, kScoringHeads, kScoredDim});
  std::ranges::copy(random.normals(q.view().size()), q.data());
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < kQueries; ++i) positions.push_back(8 * i + 7);
  const std::vector<double> want = want_masses(blocks, q.view(), positions, kKeys);
  const KeyScoresArgs args{.shape = blocks.shape,
                           .sm_scale = kScoreScale,
                           .q = q.view(),
                           .q_positions = positions,
                           .blocks = blocks.refs_there};
  const KeyScores whole = score_keys(stream(), args);
  const std::vector<float> got = key_masses(stream(), whole, whole.sums);
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(static_cast<double>(got[i]), want[i], 2e-5 * (1 + want[i])) << i;
  std::vector<double> sums(kKeys);
  add_key_masses(stream(), whole, whole.sums, sums);
  for (std::size_t j = 0; j < sums.size(); ++j) {
    double of_group = 0;
    for (std::size_t head = 0; head < kScoringHeads; ++head) of_group += want[head * kKeys + j];
    EXPECT_NEAR(sums[j], of_group, 2e-5 * (1 + of_group)) << j;
  }

  KeyScoresArgs late = args;
  late.blocks = args.blocks.subspan(2);  // from position 192 on, behind most queries
  const KeyScores of_late = score_keys(stream(), late);
  EXPECT_EQ(of_late.sums.at(0).sum, 0);
  EXPECT_GT(of_late.sums.back().sum, 0);
  const std::vector<float> in_late = key_masses(stream(), of_late, whole.sums);
  for (std::int64_t head = 0; head < kScoringHeads; ++head) {
    for (std::int64_t j = 192; j < kKeys; ++j) {
      EXPECT_FLOAT_EQ(in_late[static_cast<std::size_t>(head * (kKeys - 192) + j - 192)],
                      got[static_cast<std::size_t>(head * kKeys + j)]);
    }
  }
}

// What is left of a choice of each query head is asked again.
TEST_P(KeyScoresTest, OfSlotsThatSomeHeadsSeeEqualDoublePrecision) {
  Random random(base_seed() + 78);
  constexpr std::int64_t kKeys = 150;
  constexpr std::int64_t kQueries = 3;
  constexpr std::int64_t kBlock = 96;
  CachedKeys blocks =
      random_keys(random, stream(),
                  {.block_size = kBlock, .head_dim = kScoredDim, .k_type = KvType::kInt8}, kKeys);
  std::vector<SeenBy> seen_by;
  for (std::int64_t j = 0; j < kKeys; ++j)
    seen_by.push_back(j < kBlock ? static_cast<SeenBy>(random.integer(0, 7)) : kSeenByAll);
  const Memory<SeenBy> there(stream(), seen_by);
  blocks.refs_there[0].seen_by = there.data();
  Tensor<float, 3> q({kQueries, kScoringHeads, kScoredDim});
  std::ranges::copy(random.normals(q.view().size()), q.data());
  const std::vector<std::int64_t> positions = {90, 140, 149};
  const std::vector<double> want = want_masses(blocks, q.view(), positions, kKeys, seen_by);
  const KeyScores whole = score_keys(stream(), {.shape = blocks.shape,
                                                .sm_scale = kScoreScale,
                                                .q = q.view(),
                                                .q_positions = positions,
                                                .blocks = blocks.refs_there});
  const std::vector<float> got = key_masses(stream(), whole, whole.sums);
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(static_cast<double>(got[i]), want[i], 2e-5 * (1 + want[i])) << i;
}

TEST_P(KeyScoresTest, OfNoKeysAreNothing) {
  const KvBlockShape shape{.block_size = 16, .head_dim = kScoredDim};
  Tensor<float, 3> q({1, kScoringHeads, kScoredDim});
  const std::vector<std::int64_t> positions = {3};
  const KeyScores none =
      score_keys(stream(), {.shape = shape, .q = q.view(), .q_positions = positions, .blocks = {}});
  EXPECT_EQ(none.n_keys, 0);
  EXPECT_EQ(none.sums.at(0).sum, 0);
  EXPECT_EQ(merged(none.sums[0], ExpSum{2.0, 3.0}).sum, 3.0);
  EXPECT_TRUE(key_masses(stream(), none, none.sums).empty());
}

LONGHAUL_ON_EACH_DEVICE(KeyScoresTest);

}  // namespace
}  // namespace longhaul::test
