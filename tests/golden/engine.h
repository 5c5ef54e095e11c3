// The engine as golden tests drive it: one worker's transformer and caches over one sequence, with
// the logits of every row, which the program itself never keeps.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "model/head_profile.h"
#include "tests/golden/golden_models.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"
#include "worker/transformer.h"
#include "worker/weights.h"

namespace longhaul::test {

class Engine {
 public:
  // All heads keep everything when `roles` is empty.
  explicit Engine(const std::filesystem::path& model_folder,
                  const std::optional<HeadRoles>& roles = std::nullopt,
                  KvType kv_type = KvType::kF32, std::optional<DType> weights = std::nullopt,
                  Fp8Inputs fp8_inputs = Fp8Inputs::kAsTheyAre);

  // Appends the tokens, `chunk_len` at a time, and returns the logits after each of them.
  Logits append(std::span<const std::int32_t> tokens, std::int64_t chunk_len);
  const ModelSpec& spec() const { return weights_.spec(); }

 private:
  Weights weights_;
  CacheLayout layout_;
  BlockPool pool_;
  LayerCompute compute_;
  Transformer transformer_;
  SequenceCache cache_;
  std::int64_t n_tokens_ = 0;
};

}  // namespace longhaul::test
