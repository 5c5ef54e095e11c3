// Filters on hand cases, draws against the distribution that the filters leave.
#include "worker/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// Logits whose softmax is the given probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

std::vector<std::int32_t> tokens_left(const std::vector<float>& logits,
                                      const SamplingParams& params) {
  Sampler sampler;
  std::vector<std::int32_t> tokens;
  for (const Candidate& c : sampler.candidates(logits, params)) tokens.push_back(c.token);
  return tokens;
}

const std::vector<float> kLogits = logits_of({0.1, 0.4, 0.05, 0.25, 0.2});

TEST(Sampler, WithoutFiltersAllStay) {
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1}), ElementsAre(0, 1, 2, 3, 4));
}

TEST(Sampler, TopKKeepsTheLargestAndOfEqualOnesTheLowerIds) {
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_k = 2}), ElementsAre(1, 3));
  EXPECT_THAT(tokens_left({2, 2, 2, 2}, {.temperature = 1, .top_k = 3}), ElementsAre(0, 1, 2));
  EXPECT_EQ(tokens_left(kLogits, {.temperature = 1, .top_k = 99}).size(), 5U);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_p = 0.3}), ElementsAre(1));
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_p = 0.6}), ElementsAre(1, 3));
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_p = 0.66}), ElementsAre(1, 3, 4));
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_p = 0.0}), ElementsAre(1));
  EXPECT_THAT(tokens_left({2, 2, 2, 2}, {.temperature = 1, .top_p = 0.5}), ElementsAre(0, 1));
}

TEST(Sampler, MinPIsRelativeToTheLikeliest) {
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .min_p = 0.45}),
              UnorderedElementsAre(1, 3, 4));
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .min_p = 1.0}), ElementsAre(1));
}

TEST(Sampler, FiltersComeInOrder) {
  // top_k 3 leaves 0.4 0.25 0.2 of 0.85; top_p 0.5 of those wants 0.425: two of them. Before top_k
  // it would have wanted 0.5, also two; with top_k 2 first (0.65), 0.62 wants 0.403: two; alone,
  // three.
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_k = 3, .top_p = 0.5}),
              ElementsAre(1, 3));
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_k = 2, .top_p = 0.66}),
              ElementsAre(1, 3));
  // Temperature comes first: at 0.5 probabilities are squared, .16 .0625 .04 .01 .0025 of .275, and
  // 0.58 needs one, where at temperature 1 it needs two.
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 0.5, .top_p = 0.58}), ElementsAre(1));
  EXPECT_THAT(tokens_left(kLogits, {.temperature = 1, .top_p = 0.58}), ElementsAre(1, 3));
}

TEST(Sampler, ProbabilitiesAreRenormalised) {
  Sampler sampler;
  const auto left = sampler.candidates(kLogits, {.temperature = 1, .top_k = 2});
  EXPECT_NEAR(left[0].probability, 0.4 / 0.65, 1e-7);
  EXPECT_NEAR(left[1].probability, 0.25 / 0.65, 1e-7);
}

TEST(Sampler, MinusInfinityIsNeverDrawn) {
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  Sampler sampler;
  for (std::int64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(sampler.sample(std::vector<float>{minus_infinity, 0, minus_infinity},
                             {.temperature = 2, .seed = 3}, {position}),
              1);
  }
}

// Pearson's statistic of many draws against the candidates' probabilities.
double chi_square(const std::vector<float>& logits, const SamplingParams& params, int n_draws,
                  const IdSet* allowed = nullptr) {
  Sampler sampler;
  std::vector<double> counts(logits.size());
  for (int i = 0; i < n_draws; ++i) {
    ++counts[static_cast<std::size_t>(sampler.sample(logits, params, {i}, allowed))];
  }
  double statistic = 0;
  double n_expected = 0;
  for (const Candidate& c : sampler.candidates(logits, params, allowed)) {
    const double want = c.probability * n_draws;
    const double got = counts[static_cast<std::size_t>(c.token)];
    statistic += (got - want) * (got - want) / want;
    n_expected += got;
  }
  EXPECT_EQ(n_expected, n_draws) << "a token was drawn that the filters removed";
  return statistic;
}

TEST(Sampler, DrawsFollowTheDistribution) {
  // 4 degrees of freedom or fewer: 30 is passed by chance once in 200,000 times. Seeds are fixed.
  for (const std::uint64_t seed : {0U, 1U, 12345U}) {
    EXPECT_LT(chi_square(kLogits, {.temperature = 1, .seed = seed}, 20000), 30);
    EXPECT_LT(chi_square(kLogits, {.temperature = 0.7, .seed = seed}, 20000), 30);
    EXPECT_LT(chi_square(kLogits, {.temperature = 1.5, .top_k = 4, .seed = seed}, 20000), 30);
    EXPECT_LT(chi_square(kLogits, {.temperature = 1, .top_p = 0.8, .seed = seed}, 20000), 30);
    EXPECT_LT(chi_square(kLogits, {.temperature = 1, .min_p = 0.3, .seed = seed}, 20000), 30);
  }
}

IdSet set_of(std::int64_t size, const std::vector<std::int64_t>& ids) {
  IdSet set(size);
  for (const std::int64_t id : ids) set.insert(id);
  return set;
}

TEST(Sampler, FormsTakeTokensAwayBeforeAllFilters) {
  Sampler sampler;
  const IdSet allowed = set_of(5, {0, 2, 4});
  const auto left = sampler.candidates(kLogits, {.temperature = 1, .top_k = 2}, &allowed);
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].token, 4);
  EXPECT_NEAR(left[0].probability, 0.2 / 0.3, 1e-7);
  EXPECT_EQ(left[1].token, 0);
  EXPECT_EQ(likeliest(kLogits, allowed), 4);
  EXPECT_EQ(likeliest(kLogits, set_of(5, {2})), 2);
  EXPECT_EQ(likeliest(std::vector<float>{1, 3, 3}, set_of(3, {0, 1, 2})), 1);
  for (const std::uint64_t seed : {0U, 1U, 12345U}) {
    EXPECT_LT(chi_square(kLogits, {.temperature = 1, .seed = seed}, 20000, &allowed), 30);
  }
}

// Bit for bit: the same candidates, the same draws.
TEST(Sampler, AFormThatAllowsAllTokensChangesNothing) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>((i * 7919) % 1009) * 0.01F);
  IdSet all(1000);
  for (int id = 0; id < 1000; ++id) all.insert(id);
  Sampler one;
  Sampler other;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 0.6, .top_k = 50},
        SamplingParams{.temperature = 1.3, .top_p = 0.9},
        SamplingParams{.temperature = 1, .min_p = 0.02}}) {
    const auto plain = one.candidates(logits, params);
    const auto masked = other.candidates(logits, params, &all);
    ASSERT_EQ(plain.size(), masked.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(plain[i].token, masked[i].token);
      EXPECT_EQ(plain[i].probability, masked[i].probability);
    }
    for (std::int64_t position = 0; position < 300; ++position) {
      EXPECT_EQ(one.sample(logits, params, {position}),
                other.sample(logits, params, {position}, &all));
    }
  }
}

TEST(Sampler, DrawsDependOnSeedAndPositionOnly) {
  std::set<double> draws;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    for (std::int64_t position = 0; position < 30; ++position) {
      const double u = uniform_draw(seed, {position});
      EXPECT_GE(u, 0);
      EXPECT_LT(u, 1);
      EXPECT_EQ(u, uniform_draw(seed, {position}));
      draws.insert(u);
    }
  }
  EXPECT_EQ(draws.size(), 900U);
  EXPECT_NE(uniform_draw(1, {5'000'000'000}), uniform_draw(1, {5'000'000'000 - (1LL << 32)}));
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(check_sampling({.temperature = std::nan("")}), Error);
  EXPECT_THROW(check_sampling({.top_k = -1}), Error);
  EXPECT_THROW(check_sampling({.top_p = 1.5}), Error);
  EXPECT_THROW(check_sampling({.min_p = -0.1}), Error);
  EXPECT_NO_THROW(check_sampling({}));
}

}  // namespace
}  // namespace longhaul
