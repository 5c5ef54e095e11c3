// Small models with synthetic weights, and a driver that lets a Worker generate: for tests of the
// worker.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model_spec.h"
#include "tests/support/random.h"
#include "worker/worker.h"

namespace longhaul::test {

inline ModelSpec tiny_spec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 97;
  spec.d_model = 48;
  spec.d_ff = 80;
  spec.n_layers = 3;
  spec.n_heads = 6;
  spec.n_kv_heads = 3;
  spec.head_dim = 16;
  spec.max_seq_len = 4096;
  spec.attention_window.assign(3, ModelSpec::kNoWindow);
  return spec;
}

inline std::shared_ptr<const Weights> tiny_weights(const ModelSpec& spec = tiny_spec(),
                                                   DType dtype = DType::kF32,
                                                   std::uint64_t seed = 7) {
  return std::make_shared<const Weights>(Weights::synthetic(spec, dtype, seed));
}

// The result of a step that must succeed; its message is thrown otherwise.
inline StepDone done(StepResult result) {
  if (const auto* failed = std::get_if<StepFailed>(&result)) {
    throw Error(failed->code, failed->message);
  }
  return std::get<StepDone>(std::move(result));
}

// Prefills `tokens` in chunks of chunk_len and returns the last result, with a picked token.
inline StepDone prefill(Worker& worker, SequenceId id, std::span<const std::int32_t> tokens,
                        std::int64_t chunk_len) {
  StepDone last;
  for (std::size_t i = 0; i < tokens.size(); i += static_cast<std::size_t>(chunk_len)) {
    const auto chunk =
        tokens.subspan(i, std::min(static_cast<std::size_t>(chunk_len), tokens.size() - i));
    const bool is_last = i + chunk.size() == tokens.size();
    last = done(worker.step(
        PrefillChunk{.sequence = id,
                     .tokens = {chunk.begin(), chunk.end()},
                     .after = is_last ? AfterPrefill::kSample : AfterPrefill::kNothing}));
  }
  return last;
}

// Decodes n_tokens more after `first`, one sequence alone; `first` comes first in the result.
inline std::vector<std::int32_t> decode(Worker& worker, SequenceId id, std::int32_t first,
                                        std::int64_t n_tokens) {
  std::vector<std::int32_t> out{first};
  for (std::int64_t i = 0; i < n_tokens; ++i) {
    out.push_back(done(worker.step(DecodeBatch{.rows = {{.sequence = id, .token = out.back()}}}))
                      .picked.at(0)
                      .token);
  }
  return out;
}

}  // namespace longhaul::test
