// The largest logits of a row, ties by lower id, and the log-sum-exp.
#include "kernels/top_k.h"

#include <cmath>
#include <limits>

#include "kernels/reference/operators.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class TopK : public EachDevice {};
LONGHAUL_ON_EACH_DEVICE(TopK);

struct Result {
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  std::vector<float> log_sum_exp;
};

Result run(StreamRef stream, const std::vector<float>& logits, std::int64_t n_rows,
           std::int64_t k) {
  const Memory there(stream, logits);
  const std::int64_t vocab_size = static_cast<std::int64_t>(logits.size()) / n_rows;
  Result out;
  out.ids.resize(static_cast<std::size_t>(n_rows * k));
  out.values.resize(out.ids.size());
  out.log_sum_exp.resize(static_cast<std::size_t>(n_rows));
  top_k(stream, {.logits = TensorView<const float, 2>(there.data(), {n_rows, vocab_size}),
                 .ids = TensorView<std::int32_t, 2>(out.ids.data(), {n_rows, k}),
                 .values = TensorView<float, 2>(out.values.data(), {n_rows, k}),
                 .log_sum_exp = out.log_sum_exp});
  return out;
}

TEST_P(TopK, MatchesTheReferenceWithTies) {
  Random random(base_seed());
  for (const std::int64_t vocab_size : {1, 2, 17, 500, 10007, 16385}) {
    for (const std::int64_t k : {1, 2, 10, 500}) {
      if (k > vocab_size) continue;
      std::vector<float> logits;
      for (std::int64_t i = 0; i < 3 * vocab_size; ++i) {
        logits.push_back(0.25F * static_cast<float>(random.integer(-200, 200)));
      }
      const Result got = run(stream(), logits, 3, k);
      for (std::int64_t row = 0; row < 3; ++row) {
        const auto begin = logits.begin() + row * vocab_size;
        const std::vector<double> wide(begin, begin + vocab_size);
        const std::vector<std::int32_t> want = reference::top_k(wide, k);
        for (std::int64_t i = 0; i < k; ++i) {
          const auto at = static_cast<std::size_t>(row * k + i);
          EXPECT_EQ(got.ids[at], want[static_cast<std::size_t>(i)]);
          EXPECT_EQ(got.values[at], wide[static_cast<std::size_t>(got.ids[at])]);
        }
        EXPECT_NEAR(got.log_sum_exp[static_cast<std::size_t>(row)], reference::log_sum_exp(wide),
                    1e-5);
      }
    }
  }
}

// Counts were once cleared for the next digit while the last one was still being chosen.
TEST_P(TopK, DigitsAreChosenBeforeTheirCountsAreCleared) {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kVocab = 97;
  constexpr std::int64_t kMost = 4;
  Random random(base_seed());
  const std::vector<float> logits = random.normals(kRows * kVocab);
  const Result got = run(stream(), logits, kRows, kMost);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto begin = logits.begin() + row * kVocab;
    const auto want = reference::top_k(std::vector<double>(begin, begin + kVocab), kMost);
    const auto first = got.ids.begin() + row * kMost;
    EXPECT_EQ(std::vector<std::int32_t>(first, first + kMost), want) << "row " << row;
  }
}

TEST_P(TopK, EqualLogitsGiveTheLowestIds) {
  const Result got = run(stream(), std::vector<float>(1000, -2.5F), 1, 3);
  EXPECT_EQ(got.ids, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(run(stream(), std::vector<float>(1000, -2.5F), 1, 1).ids[0], 0);
}

// Also in rows of which GPUs choose piece by piece.
TEST_P(TopK, InfinitiesAreLogitsToo) {
  for (const std::size_t vocab_size : {40, 20000}) {
    std::vector<float> logits(vocab_size, -kInfinity);
    EXPECT_EQ(run(stream(), logits, 1, 1).log_sum_exp[0], -kInfinity);
    EXPECT_EQ(run(stream(), logits, 1, 3).ids, (std::vector<std::int32_t>{0, 1, 2}));
    logits[33] = -200.0F;
    const Result got = run(stream(), logits, 1, 2);
    EXPECT_EQ(got.ids, (std::vector<std::int32_t>{33, 0}));
    EXPECT_FLOAT_EQ(got.log_sum_exp[0], -200.0F);
  }
}

TEST_P(TopK, NanThrowsAndNamesTheRow) {
  for (const std::size_t at : {0, 37, 9999}) {
    std::vector<float> logits(30000, 1.0F);
    logits[10000 + at] = std::nanf("");
    try {
      run(stream(), logits, 3, 1);
      ADD_FAILURE() << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_NE(std::string(error.what()).find("row 1 "), std::string::npos) << error.what();
    }
  }
}

TEST(TopKArguments, BadOnesAreRefused) {
  EXPECT_THROW(run(StreamRef::cpu(), std::vector<float>(10), 1, 11), Error);
  EXPECT_THROW(run(StreamRef::cpu(), std::vector<float>(10), 1, 0), Error);
}

}  // namespace
}  // namespace longhaul::test
