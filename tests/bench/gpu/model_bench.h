// A whole model on one GPU: how fast a document is read, how fast a token is decoded far into it,
// how many tokens fit. int8 weights, int4 caches, every other KV head streaming.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/model_spec.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

struct ModelBenchCase {
  ModelSpec spec;
  std::int64_t document_tokens = 0;  // read in chunks; in the cache when tokens are decoded
  std::int64_t chunk_len = 0;
  // Reading takes minutes, so the first layers stand for all. Of the last one only the last token's
  // attention is computed, as of the model's.
  std::int64_t n_prefill_layers = 0;
  int n_decode_steps = 0;
  std::optional<std::size_t> cache_limit_bytes = std::nullopt;  // none: the GPU's memory
};
// Llama-3-8B's shape, a million tokens.
ModelBenchCase large_model_case();

struct ModelBenchResult {
  double prefill_seconds = 0;  // of the layers that stand for all
  double decode_seconds = 0;   // of a token
  std::int64_t tokens_that_fit = 0;
  std::int64_t promised_tokens = 0;  // by the planner, with this GPU's memory
};
// Prints a line for each. `rates` are what the GPU attains.
ModelBenchResult bench_model(const Rates& rates, const ModelBenchCase& c);

}  // namespace longhaul::bench
