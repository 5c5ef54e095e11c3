// Turns hidden rows into picked or scored tokens: logits in tiles of rows (so that [n, vocab_size]
// never exists for a long prompt), the most likely tokens, log-probabilities, the pick.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/device_memory.h"
#include "cluster/wire/step.h"
#include "kernels/tensor.h"
#include "worker/layer_compute.h"
#include "worker/logit_adjuster.h"
#include "worker/sampler.h"

namespace longhaul {

// What is asked of one hidden row.
struct LogitsQuestion {
  static constexpr std::int32_t kPick = -1;
  SequenceId sequence;
  std::int32_t token = kPick;                // the token to score, or kPick
  const SamplingParams* sampling = nullptr;  // how to pick; not looked at when scoring
  const IdSet* allowed = nullptr;            // of what may be picked; null: all
  const LogitAdjuster* rules = nullptr;      // of the sequence, for picking; null: none
  TokenPos position{};                       // of the token in its sequence
  std::int64_t n_logprobs = -1;              // -1: none; more than the vocabulary has: all
};

// Used by one thread.
class LogitsReader {
 public:
  explicit LogitsReader(LayerCompute& compute) : compute_(compute) {}

  // One answer for each row of `hidden` [n_rows, d_model]. Throws kCorruptData for NaN
  // logits.
  void answer(const TensorView<const float, 2>& hidden, std::span<const LogitsQuestion> questions,
              std::vector<PickedToken>& answers);

  // The same from logits [n_rows, vocab_size] that are there already, on the worker's device.
  void read(const TensorView<const float, 2>& logits, std::span<const LogitsQuestion> questions,
            std::vector<PickedToken>& answers);

  // Whether the last read() was left by an exception: then this rank failed at something that no
  // other rank takes part in.
  bool failed_to_read() const { return is_reading_; }
  void forget_failure() { is_reading_ = false; }

 private:
  void fetch(const TensorView<const float, 2>& logits, std::span<const LogitsQuestion> questions);
  std::int32_t pick(const LogitsQuestion& question, std::span<const float> logits);

  LayerCompute& compute_;
  Sampler sampler_;
  bool is_reading_ = false;
  std::vector<std::int32_t> ids_;
  std::vector<float> values_;
  std::vector<float> log_sum_exp_;
  std::vector<float> adjusted_;
  // What fetch() brings to the host, for each row: all its logits where a token is sampled (from a
  // CPU's logits always, as they are), else that of a token to score.
  std::vector<const float*> rows_;
  std::vector<float> scored_;
  std::vector<float> row_memory_;
  std::vector<HostCopy> copies_;
};

}  // namespace longhaul
