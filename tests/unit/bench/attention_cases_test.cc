// The benchmark's attention is attention: against plain loops in double precision over the case's
// own memory.
#include "tools/bench/attention_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/kv_append.h"
#include "kernels/probes/random_values.h"
#include "kernels/reference/kv_read.h"
#include "tools/bench/statistics.h"

namespace longhaul::bench {
namespace {

// Keys of one KV head's block, [block_size, head_dim].
std::vector<float> keys_of(const AttentionRun& run, std::int64_t kv_head, std::int64_t number) {
  const KvBlockShape& shape = run.shape();
  std::vector<float> keys(static_cast<std::size_t>(shape.block_size * shape.head_dim));
  kv_read_k(shape, run.block(kv_head, number), 0,
            TensorView<float, 2>(keys.data(), {shape.block_size, shape.head_dim}));
  return keys;
}

// q . k / sqrt(head_dim) for keys [0, n_keys).
std::vector<double> scores_of(const AttentionRun& run, const AttentionCase& c, std::int64_t row,
                              std::int64_t head, std::int64_t n_keys) {
  const std::int64_t block_size = run.shape().block_size;
  const float* q = run.q().data() + (row * c.n_kv_heads * c.gqa_group + head) * c.head_dim;
  std::vector<double> scores;
  std::vector<float> keys;
  for (std::int64_t key = 0; key < n_keys; ++key) {
    if (key % block_size == 0) keys = keys_of(run, head / c.gqa_group, key / block_size);
    const float* k = keys.data() + key % block_size * c.head_dim;
    double sum = 0;
    for (std::int64_t d = 0; d < c.head_dim; ++d) sum += double{q[d]} * double{k[d]};
    scores.push_back(sum / std::sqrt(static_cast<double>(c.head_dim)));
  }
  return scores;
}

// Largest distance between log(sum of exp(scores)) of the last chunk's rows and the kernel's.
double worst_lse_error(const AttentionCase& c, KvType type = KvType::kF32) {
  AttentionRun run(c, type);
  run.run();
  const std::int64_t chunk = c.chunk_len == 0 ? c.q_len : c.chunk_len;
  const std::int64_t first = c.kv_len - c.q_len + (c.q_len - 1) / chunk * chunk;
  double worst = 0;
  for (std::int64_t position = first; position < c.kv_len; ++position) {
    for (std::int64_t head = 0; head < c.n_kv_heads * c.gqa_group; ++head) {
      const auto all = scores_of(run, c, position - first, head, position + 1);
      std::vector<double> scores;
      for (std::int64_t key = 0; key <= position; ++key) {
        if (key < c.mask.sink || position - key < c.mask.recent) {
          scores.push_back(all[static_cast<std::size_t>(key)]);
        }
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double s : scores) sum += std::exp(s - most);
      const std::int64_t at = (position - first) * c.n_kv_heads * c.gqa_group + head;
      const double lse =
          double{run.state().m.data()[at]} + std::log(double{run.state().l.data()[at]});
      worst = std::max(worst, std::abs(lse - (most + std::log(sum))));
    }
  }
  return worst;
}

TEST(AttentionRun, IsCausalAttention) {
  EXPECT_LT(worst_lse_error({.q_len = 70, .kv_len = 70, .gqa_group = 2, .head_dim = 64}), 1e-4);
  EXPECT_LT(worst_lse_error({.q_len = 9, .kv_len = 200, .n_kv_heads = 2, .head_dim = 64}), 1e-4);
}

TEST(AttentionRun, ReadsQuantisedKeys) {
  const AttentionCase c{.q_len = 20, .kv_len = 100, .gqa_group = 2, .head_dim = 64};
  EXPECT_LT(worst_lse_error(c, KvType::kInt8), 1e-2);
  EXPECT_LT(worst_lse_error(c, KvType::kInt4), 1e-2);
  // A token of a head is 64 codes, a scale and a minimum.
  EXPECT_EQ(attention_work(c, KvType::kInt8).bytes, 100 * 2 * (64 + 4.0) + 4 * 20 * 2 * 64);
}

TEST(AttentionRun, OfStreamingHeadsReusesMemoryThatNobodySeesAnyMore) {
  for (const std::int64_t chunk_len : {700, 128, 100, 64, 37}) {
    EXPECT_LT(worst_lse_error({.q_len = 700,
                               .kv_len = 700,
                               .n_kv_heads = 2,
                               .gqa_group = 2,
                               .head_dim = 64,
                               .mask = {.sink = 70, .recent = 130},
                               .chunk_len = chunk_len}),
              1e-4)
        << chunk_len;
  }
}

TEST(AttentionRun, HasScoresOfTheSpreadThatWasAskedFor) {
  for (const float deviation : {1.0F, 40.0F}) {
    const AttentionCase c{
        .q_len = 40, .kv_len = 640, .gqa_group = 4, .head_dim = 128, .score_deviation = deviation};
    const AttentionRun run(c, KvType::kF32);
    std::vector<double> scores;
    for (std::int64_t row = 0; row < c.q_len; ++row) {
      const auto of_row = scores_of(run, c, row, 1, c.kv_len);
      scores.insert(scores.end(), of_row.begin(), of_row.end());
    }
    EXPECT_NEAR(standard_deviation(scores) / double{deviation}, 1, 0.1);
    EXPECT_NEAR(mean(scores) / double{deviation}, 0, 0.1);
  }
}

TEST(AttentionRun, CountsItsWork) {
  // 1 + 2 + 3 + 4 pairs, 2 heads, 4 x 64 for each.
  const Work causal =
      attention_work({.q_len = 4, .kv_len = 4, .gqa_group = 2, .head_dim = 64}, KvType::kF32);
  EXPECT_EQ(causal.flops, 10 * 2 * 256.0);
  EXPECT_EQ(causal.bytes, 4 * 2 * 64 * 4.0 + 4 * 4 * 2 * 64.0);
  const Work decode =
      attention_work({.q_len = 1, .kv_len = 1000, .n_kv_heads = 3, .head_dim = 64}, KvType::kBf16);
  EXPECT_EQ(decode.bytes, 3 * 1000 * 2 * 64 * 2.0 + 4 * 3 * 64.0);
  // 100 queries that see 8 keys each.
  const AttentionCase window{
      .q_len = 100, .kv_len = 1000, .head_dim = 64, .mask = {.sink = 3, .recent = 5}};
  EXPECT_EQ(attention_work(window, KvType::kF32).flops, 100 * 8 * 256.0);
  EXPECT_THROW(AttentionRun({.q_len = 5, .kv_len = 4, .head_dim = 64}, KvType::kF32), Error);
}

TEST(RandomValues, AreTheSameForTheSameSeedAndNoDenormals) {
  std::vector<float> a(100'000), b(100'000), c(100'000);
  fill_random(a, 2.0F, 5);
  fill_random(b, 2.0F, 5);
  fill_random(c, 2.0F, 6);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  double squares = 0;
  for (const float x : a) {
    EXPECT_TRUE(x == 0 || std::isnormal(x));
    squares += double{x} * double{x};
  }
  EXPECT_NEAR(squares / 1e5, 4, 0.05);
  const auto halves = random_values(DType::kBf16, 1000, 2.0F, 5);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const float half = to_float(reinterpret_cast<const BFloat16*>(halves.data())[i]);
    EXPECT_NEAR(half, a[static_cast<std::size_t>(i)], 0.02);
  }
}

}  // namespace
}  // namespace longhaul::bench
