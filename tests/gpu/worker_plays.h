// The same commands to a worker on the CPU and to one on a GPU, and what both answer: the CPU's
// worker, which golden tests compare with other implementations, is the oracle. Skips visibly where
// there is no GPU.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device/device_memory.h"
#include "kernels/cpu/threads.h"
#include "tests/unit/worker/tiny_models.h"
#include "worker/worker.h"

namespace longhaul::test {

inline constexpr SequenceId kA{1};
inline constexpr SequenceId kB{2};
inline constexpr SequenceId kC{3};

inline constexpr DeviceId kGpu{Device::kCuda, 0};

// How far log-probabilities may be from the CPU's.
inline constexpr double kFloat32 = 2e-4;

// Beside caches of 16 bits and less GPUs round queries and weights to bf16, CPUs to other types;
// and what differs in its last bit before it is cached may get the neighbouring code.
inline double tolerance_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return kFloat32;
    case KvType::kBf16:
    case KvType::kInt8:
      return 6e-2;
    case KvType::kFp8:  // steps of an eighth
    case KvType::kInt4:
    case KvType::kKivi4:
      return 0.3;
    case KvType::kKivi2:
      return 0.6;
  }
  return 0;
}

// What was seen of one worker.
struct Seen {
  std::vector<PickedToken> picked;
  std::vector<PickedToken> scored;
  std::vector<std::size_t> kv_bytes;  // in use, after each step
};

// Gives commands and notes the answers.
class Player {
 public:
  explicit Player(const WorkerConfig& config) : worker_(config) {}
  StepDone step(const StepCommand& command) {
    StepDone result = done(worker_.step(command));
    seen_.picked.insert(seen_.picked.end(), result.picked.begin(), result.picked.end());
    seen_.scored.insert(seen_.scored.end(), result.scored.begin(), result.scored.end());
    seen_.kv_bytes.push_back(result.kv_bytes_in_use);
    return result;
  }
  void open(SequenceId id, const SamplingParams& sampling = {}) {
    step(OpenSequence{.sequence = id, .sampling = sampling});
  }
  // In chunks; returns the token picked after the last one.
  std::int32_t prefill(SequenceId id, std::span<const std::int32_t> tokens, std::size_t chunk_len) {
    StepDone last;
    while (!tokens.empty()) {
      const auto chunk = tokens.first(std::min(tokens.size(), chunk_len));
      tokens = tokens.subspan(chunk.size());
      last = step(
          PrefillChunk{.sequence = id,
                       .tokens = {chunk.begin(), chunk.end()},
                       .after = tokens.empty() ? AfterPrefill::kSample : AfterPrefill::kNothing});
    }
    return last.picked.at(0).token;
  }
  // n steps of all these sequences together, from the tokens that were picked for them.
  void decode(const std::vector<SequenceId>& ids, std::vector<std::int32_t> tokens, int n) {
    for (int i = 0; i < n; ++i) {
      DecodeBatch batch;
      for (std::size_t row = 0; row < ids.size(); ++row) {
        batch.rows.push_back({.sequence = ids[row], .token = tokens[row]});
      }
      const StepDone result = step(batch);
      for (std::size_t row = 0; row < ids.size(); ++row) tokens[row] = result.picked[row].token;
    }
  }
  // n steps with random tokens, whatever is picked: rounding then changes no later step.
  void feed(const std::vector<SequenceId>& ids, Random& random, int n) {
    for (int i = 0; i < n; ++i) {
      DecodeBatch batch;
      for (const SequenceId id : ids) {
        batch.rows.push_back({.sequence = id, .token = random_tokens(random, 1, 97).front()});
      }
      step(batch);
    }
  }
  Worker& worker() { return worker_; }
  const Seen& seen() const { return seen_; }

 private:
  Worker worker_;
  Seen seen_;
};

// GPU memory that the operators of a worker have taken for themselves, products' apart.
inline std::int64_t scratch_taken(const Worker& worker) {
  const std::string memory = worker.describe_memory();
  constexpr std::string_view kBefore = "the operators' scratch ";
  const std::size_t at = memory.find(kBefore);
  EXPECT_NE(at, std::string::npos) << memory;
  return at == std::string::npos ? 0 : std::stoll(memory.substr(at + kBefore.size()));
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  }
  void TearDown() override { set_kernel_threads(0); }
};

using MakeConfig = std::function<WorkerConfig(const DeviceId&)>;  // with weights on that device
using Play = std::function<void(Player&)>;

// Log-probabilities by token; those of the most likely tokens that were asked for.
inline double largest_difference(const PickedToken& a, const PickedToken& b) {
  double largest = a.token == b.token ? std::abs(a.logprob - b.logprob) : 0;
  for (const TokenLogprob& one : a.top) {
    for (const TokenLogprob& other : b.top) {
      if (one.token == other.token) {
        largest = std::max<double>(largest, std::abs(one.logprob - other.logprob));
      }
    }
  }
  return largest;
}

// The same log-probabilities within `tolerance`, and the same tokens but where `want` has two best
// ones so close together. Picked tokens must ask for two log-probabilities at least.
inline void expect_same_answers(const std::vector<PickedToken>& got,
                                const std::vector<PickedToken>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  int n_close = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].sequence, want[i].sequence);
    const auto& top = want[i].top;
    const bool is_clear = top.size() < 2 || top[0].logprob - top[1].logprob > tolerance;
    if (is_clear) {
      ASSERT_EQ(got[i].token, want[i].token) << "answer " << i << " of " << got.size();
    } else {
      ++n_close;
    }
    ASSERT_EQ(got[i].top.size(), want[i].top.size());
    largest = std::max(largest, largest_difference(got[i], want[i]));
  }
  if (!got.empty()) {
    std::printf("  %zu tokens, %d of close calls; log-probabilities differ by at most %.2g\n",
                got.size(), n_close, largest);
  }
  EXPECT_LE(largest, tolerance);
}

// The GPU gives the CPU's tokens, log-probabilities within `tolerance`, and takes as many bytes of
// cache after every step.
inline void expect_the_cpus_answers(const MakeConfig& make, const Play& play, double tolerance) {
  Player cpu(make({}));
  play(cpu);
  Player gpu(make(kGpu));
  play(gpu);
  EXPECT_EQ(gpu.seen().kv_bytes, cpu.seen().kv_bytes);
  expect_same_answers(gpu.seen().picked, cpu.seen().picked, tolerance);
  expect_same_answers(gpu.seen().scored, cpu.seen().scored, tolerance);
}

}  // namespace longhaul::test
