// Random models, roles and ways to cut a text into chunks, and runs of a Worker over them: what the
// properties of the worker have in common.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/head_profile.h"
#include "model/heads/head_table.h"
#include "model/model_spec.h"
#include "tests/support/random.h"
#include "worker/worker.h"

namespace longhaul::test {

// Llama- or Qwen3-like, with or without biases, windows and tied embeddings; small.
ModelSpec random_spec(Random& random);
// Some heads streaming, sink and recent small and mostly no multiples of anything.
HeadRoles random_roles(Random& random, const ModelSpec& spec);
// The same without windows, of a model whose heads merge some of their tokens, or nearly all.
ModelSpec merging_spec(Random& random);
// These heads, but streaming ones keep a key for what has left their windows (razor).
HeadTable with_compensation_keys(HeadTable heads);
// Lengths >= 1 that sum to n: whole, equal, or wild.
std::vector<std::int64_t> random_chunks(Random& random, std::int64_t n);
// n cut into pieces of chunk_len.
std::vector<std::int64_t> equal_chunks(std::int64_t n, std::int64_t chunk_len);

// Log-probabilities of the whole vocabulary after each token but the last, [n_tokens - 1,
// vocab_size], from a new sequence that is dropped again.
std::vector<float> log_probabilities(Worker& worker, std::span<const std::int32_t> tokens,
                                     std::span<const std::int64_t> chunks);

// The same from steps' results.
std::vector<float> scored_log_probabilities(std::span<const StepDone> results);

// A new sequence with these tokens; gives the token picked after them.
std::int32_t open_with(Worker& worker, SequenceId id, std::span<const std::int32_t> tokens,
                       std::span<const std::int64_t> chunks, const SamplingParams& sampling = {});

}  // namespace longhaul::test
