#include "tests/property/worker_cases.h"

#include <algorithm>

#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {

ModelSpec random_spec(Random& random) {
  ModelSpec spec;
  const bool is_qwen3 = random.chance(0.4);
  spec.model_type = is_qwen3 ? "qwen3" : "llama";
  spec.qk_norm = is_qwen3;
  spec.qkv_bias = spec.attention_output_bias = random.chance(0.3);
  spec.mlp_bias = !is_qwen3 && random.chance(0.3);
  spec.tied_embeddings = random.chance(0.5);
  spec.n_kv_heads = random.integer(1, 4);
  spec.n_heads = spec.n_kv_heads * random.integer(1, 4);
  spec.head_dim = 8 * random.integer(1, 4);
  spec.d_model = 4 * random.integer(4, 16);
  spec.d_ff = 4 * random.integer(4, 24);
  spec.n_layers = random.integer(1, 4);
  spec.vocab_size = random.integer(40, 120);
  spec.max_seq_len = 4096;
  spec.norm_eps = 1e-5;
  if (random.chance(0.3))
    spec.sink_logits = random.chance(0.5) ? SinkLogits::kZero : SinkLogits::kLearned;
  const std::int64_t window = random.integer(1, 50);
  for (std::int64_t i = 0; i < spec.n_layers; ++i) {
    spec.attention_window.push_back(is_qwen3 && random.chance(0.3) ? window : ModelSpec::kNoWindow);
  }
  return spec;
}

ModelSpec merging_spec(Random& random) {
  ModelSpec spec = random_spec(random);
  spec.attention_window.assign(static_cast<std::size_t>(spec.n_layers), ModelSpec::kNoWindow);
  constexpr double kInitVals[] = {0.2, 0, -0.5, -2};
  spec.token_merging =
      TokenMerging{.window = random.chance(0.7) ? 12 : random.integer(1, 20),
                   .init_val = kInitVals[static_cast<std::size_t>(random.integer(0, 3))]};
  return spec;
}

HeadRoles random_roles(Random& random, const ModelSpec& spec) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  for (HeadRole& role : roles.roles) {
    if (random.chance(0.6)) role = HeadRole::kStreaming;
  }
  roles.sink = random.chance(0.2) ? 0 : random.integer(1, 40);
  roles.recent = random.integer(1, 70);
  return roles;
}

HeadTable with_compensation_keys(HeadTable heads) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      HeadPolicy policy = heads.at(layer, kv_head);
      if (kind_of(policy) != HeadKind::kStreaming) continue;
      policy.rest = Rest::kCompensationKey;
      heads.set(layer, kv_head, policy);
    }
  }
  return heads;
}

std::vector<std::int64_t> equal_chunks(std::int64_t n, std::int64_t chunk_len) {
  std::vector<std::int64_t> chunks;
  for (std::int64_t left = n; left > 0; left -= chunk_len) {
    chunks.push_back(std::min(left, chunk_len));
  }
  return chunks;
}

std::vector<std::int64_t> random_chunks(Random& random, std::int64_t n) {
  if (random.chance(0.2)) return {n};
  if (random.chance(0.3)) return equal_chunks(n, random.integer(1, n));
  std::vector<std::int64_t> chunks;
  for (std::int64_t left = n; left > 0; left -= chunks.back()) {
    chunks.push_back(random.chance(0.3) ? 1 : random.integer(1, left));
  }
  return chunks;
}

std::vector<float> log_probabilities(Worker& worker, std::span<const std::int32_t> tokens,
                                     std::span<const std::int64_t> chunks) {
  constexpr SequenceId kId{1'000'000};
  constexpr std::int64_t kAll = 1'000'000;
  done(worker.step(OpenSequence{.sequence = kId, .sampling = {}}));
  std::vector<StepDone> results;
  std::size_t begin = 0;
  for (const std::int64_t n : chunks) {
    const auto chunk = tokens.subspan(begin, static_cast<std::size_t>(n));
    begin += chunk.size();
    results.push_back(done(worker.step(PrefillChunk{
        .sequence = kId, .tokens = {chunk.begin(), chunk.end()}, .score_logprobs = kAll})));
  }
  done(worker.step(DropSequences{.sequences = {kId}}));
  return scored_log_probabilities(results);
}

std::vector<float> scored_log_probabilities(std::span<const StepDone> results) {
  std::vector<float> out;
  for (const StepDone& result : results) {
    for (const PickedToken& scored : result.scored) {
      const std::size_t row = out.size();
      out.resize(row + scored.top.size());
      for (const TokenLogprob& t : scored.top) {
        out[row + static_cast<std::size_t>(t.token)] = t.logprob;
      }
    }
  }
  return out;
}

std::int32_t open_with(Worker& worker, SequenceId id, std::span<const std::int32_t> tokens,
                       std::span<const std::int64_t> chunks, const SamplingParams& sampling) {
  done(worker.step(OpenSequence{.sequence = id, .sampling = sampling}));
  StepDone last;
  std::size_t begin = 0;
  for (const std::int64_t n : chunks) {
    const auto chunk = tokens.subspan(begin, static_cast<std::size_t>(n));
    begin += chunk.size();
    last = done(worker.step(PrefillChunk{
        .sequence = id,
        .tokens = {chunk.begin(), chunk.end()},
        .after = begin == tokens.size() ? AfterPrefill::kSample : AfterPrefill::kNothing}));
  }
  return last.picked.at(0).token;
}

}  // namespace longhaul::test
