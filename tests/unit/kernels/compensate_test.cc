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
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kTokens = 70;
constexpr std::int64_t kWindowDim = 32;
constexpr std::int64_t kWindowHeads = 2;
constexpr std::int64_t kWindowBlock = 16;
constexpr std::int64_t kSink = 3;
constexpr std::int64_t kRecent = 20;
constexpr float kWindowScale = 0.2F;

// One head's cache and a query for each of its tokens.
struct WindowProblem {
  WindowProblem(StreamRef stream, KvType type, bool equal_keys = false)
      : shape{kWindowBlock, kWindowDim, type, type}, there(stream) {
    Random random(base_seed() + static_cast<std::uint64_t>(type));
    k = random.normals(kTokens * kWindowDim);
    v = random.normals(kTokens * kWindowDim);
    for (std::int64_t t = kSink; equal_keys && t < kTokens; ++t)
      std::copy_n(k.begin(), kWindowDim, k.begin() + t * kWindowDim);
    q = random.normals(kTokens * kWindowHeads * kWindowDim);
    for (std::int64_t first = 0; first < kTokens; first += kWindowBlock) {
      const std::int64_t n = std::min(kWindowBlock, kTokens - first);
      std::byte* to = memory.emplace_back(shape.bytes()).data();
      const TensorView<float, 2> rows_k(k.data() + first * kWindowDim, {n, kWindowDim});
      const TensorView<float, 2> rows_v(v.data() + first * kWindowDim, {n, kWindowDim});
      const KvAppendItem item{.k = rows_k, .v = rows_v, .blocks = {&to, 1}};
      kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
      kv_read_k(shape, to, 0, rows_k);
      kv_read_v(shape, to, 0, rows_v);
      on_device.emplace_back(stream, memory.back());
      blocks.push_back({.data = on_device.back().data(), .first_position = first, .n_tokens = n});
    }
    for (std::int64_t t = 0; t < kTokens; ++t) positions.push_back(t);
  }

  // Of queries [0, kTokens), so many at a time: [kTokens, kWindowHeads, kWindowDim].
  std::vector<float> attended(std::int64_t at_once) {
    const StateThere state(there, SoftmaxState(kTokens, kWindowHeads, kWindowDim));
    clear(there, state.view());
    const Memory<float> q_there(there, q);
    const TensorView<const float, 3> queries(q_there.data(), {kTokens, kWindowHeads, kWindowDim});
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
      compensate(there, {.shape = shape, .sm_scale = kWindowScale, .items = {&item, 1}});
      const AttentionItem window{.q = queries.slice(0, rows),
                                 .q_positions = at,
                                 .blocks = blocks,
                                 .mask = {.sink = kSink, .recent = kRecent},
                                 .state = state.view().tokens(rows)};
      attention(there, {.shape = shape, .sm_scale = kWindowScale, .items = {&window, 1}});
    }
    EXPECT_EQ(sums.n, kTokens - kRecent - kSink + 1);
    const Memory<float> out(there, static_cast<std::int64_t>(q.size()));
    finish_attention(
        there, {.state = state.view(),
                .sink_logits = {},
                .out = TensorView<float, 3>(out.data(), {kTokens, kWindowHeads, kWindowDim})});
    return out.values();
  }

  // By the definition, query after query.
  std::vector<double> reference() const {
    std::vector<double> out;
    for (std::int64_t i = 0; i < kTokens * kWindowHeads; ++i) {
      const std::int64_t position = i / kWindowHeads;
      std::vector<double> mean_k(kWindowDim);
      std::vector<double> mean_v(kWindowDim);
      std::vector<double> sum(kWindowDim);
      double denominator = 0;
      double n_gone = 0;
      const auto add = [&](const double* key, const double* value, double weight) {
        double score = 0;
        for (std::int64_t d = 0; d < kWindowDim; ++d)
          score += static_cast<double>(q[static_cast<std::size_t>(i * kWindowDim + d)]) * key[d];
        const double e = weight * std::exp(static_cast<double>(kWindowScale) * score);
        denominator += e;
        for (std::size_t d = 0; d < kWindowDim; ++d) sum[d] += e * value[d];
      };
      for (std::int64_t t = 0; t <= position; ++t) {
        const std::vector<double> key(k.begin() + t * kWindowDim, k.begin() + (t + 1) * kWindowDim);
        const std::vector<double> value(v.begin() + t * kWindowDim,
                                        v.begin() + (t + 1) * kWindowDim);
        if (t < kSink || position - t < kRecent) {
          add(key.data(), value.data(), 1);
          continue;
        }
        ++n_gone;
        for (std::size_t d = 0; d < kWindowDim; ++d) mean_k[d] += key[d], mean_v[d] += value[d];
      }
      for (std::size_t d = 0; d < kWindowDim && n_gone > 0; ++d)
        mean_k[d] /= n_gone, mean_v[d] /= n_gone;
      if (n_gone > 0) add(mean_k.data(), mean_v.data(), n_gone);
      for (const double x : sum) out.push_back(x / denominator);
    }
    return out;
  }

  KvBlockShape shape;
  StreamRef there;       // where blocks, queries and states are
  std::vector<float> k;  // as the blocks hold them
  std::vector<float> v;
  std::vector<float> q;
  std::vector<std::vector<std::byte>> memory;
  std::vector<Memory<std::byte>> on_device;
  std::vector<KvBlockRef> blocks;
  std::vector<std::int64_t> positions;
};

class Compensate : public EachDevice {};

TEST_P(Compensate, MatchesTheDefinitionInEveryType) {
  for (const KvType type : kPlainKvTypes) {
    WindowProblem problem(stream(), type);
    EXPECT_TRUE(close(problem.attended(kTokens), problem.reference(),
                      attention_tolerance(type, stream().device())))
        << name_of(type);
  }
}

TEST_P(Compensate, DoesNotDependOnHowQueriesComeTogether) {
  WindowProblem problem(stream(), KvType::kF32);
  const std::vector<float> want = problem.attended(kTokens);
  for (const std::int64_t at_once : {1, 7, 33}) {
    const std::vector<float> got = problem.attended(at_once);
    EXPECT_TRUE(close(got, std::span<const float>(want), operator_tolerance(DType::kF32)));
  }
}

TEST_P(Compensate, EqualKeysAreAttendedToAsIfTheyWereThere) {
  WindowProblem problem(stream(), KvType::kF32, /*equal_keys=*/true);
  reference::AttentionCase dense{.n_heads = kWindowHeads,
                                 .n_kv_heads = 1,
                                 .head_dim = kWindowDim,
                                 .q = {problem.q.begin(), problem.q.end()},
                                 .q_positions = problem.positions,
                                 .k = {problem.k.begin(), problem.k.end()},
                                 .v = {problem.v.begin(), problem.v.end()},
                                 .k_positions = problem.positions,
                                 .masks = {},
                                 .sink_logits = {},
                                 .sm_scale = static_cast<double>(kWindowScale)};
  EXPECT_TRUE(close(problem.attended(kTokens), reference::attention(dense).out,
                    operator_tolerance(DType::kF32)));
}

LONGHAUL_ON_EACH_DEVICE(Compensate);

}  // namespace
}  // namespace longhaul::test
