#include "tests/golden/engine.h"

#include <algorithm>

#include "model/model_folder.h"
#include "worker/batch.h"

namespace longhaul::test {
namespace {

HeadTable heads_of(const ModelSpec& spec, const std::optional<HeadRoles>& roles) {
  return roles ? duo_attention_heads(spec, *roles) : dense_heads(spec);
}

}  // namespace

Engine::Engine(const std::filesystem::path& model_folder, const std::optional<HeadRoles>& roles,
               KvType kv_type, std::optional<DType> weights, Fp8Inputs fp8_inputs)
    : weights_(Weights::load(ModelFolder(model_folder), weights, {}, fp8_inputs)),
      layout_(heads_of(spec(), roles), weights_.layers(),
              {.head_dim = spec().head_dim, .k_type = kv_type, .v_type = kv_type}),
      pool_(layout_.shape()),
      compute_(weights_),
      transformer_(compute_, layout_),
      cache_(layout_, pool_) {}

Logits Engine::append(std::span<const std::int32_t> tokens, std::int64_t chunk_len) {
  Logits out{.n_tokens = static_cast<std::int64_t>(tokens.size()),
             .vocab_size = spec().vocab_size,
             .values = {}};
  for (std::int64_t begin = 0; begin < out.n_tokens; begin += chunk_len) {
    const std::int64_t n_rows = std::min(chunk_len, out.n_tokens - begin);
    const BatchSegment segment{
        .cache = &cache_, .rows = {0, n_rows}, .first_position = {n_tokens_}};
    const auto chunk =
        tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n_rows));
    const auto hidden = transformer_.forward({.tokens = chunk, .segments = {&segment, 1}});
    const auto logits = compute_.logits(hidden);
    out.values.insert(out.values.end(), logits.data(), logits.data() + logits.size());
    n_tokens_ += n_rows;
  }
  return out;
}

}  // namespace longhaul::test
