// Models and requests that the planner's tests share.
#pragma once
#include "partition/make_plan.h"

namespace longhaul::test {

// The dimensions of Llama-3-8B; weights in bf16.
inline ModelSpec llama3_8b() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 128256;
  spec.d_model = 4096;
  spec.d_ff = 14336;
  spec.n_layers = 32;
  spec.n_heads = 32;
  spec.n_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_seq_len = 1048576;
  spec.rope_theta = 500000.0;
  spec.attention_window.assign(32, ModelSpec::kNoWindow);
  spec.weight_dtype = DType::kBf16;
  return spec;
}

// A model of a few kilobytes.
inline ModelSpec tiny_model(std::int64_t n_layers = 4, std::int64_t n_kv_heads = 2) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 512;
  spec.d_model = 64;
  spec.d_ff = 160;
  spec.n_layers = n_layers;
  spec.n_heads = 2 * n_kv_heads;
  spec.n_kv_heads = n_kv_heads;
  spec.head_dim = 16;
  spec.max_seq_len = 1 << 20;
  spec.attention_window.assign(static_cast<std::size_t>(n_layers), ModelSpec::kNoWindow);
  return spec;
}

// The first `n_retrieval` heads of every layer keep everything.
inline HeadTable first_heads(const ModelSpec& spec, std::int64_t n_retrieval,
                             std::int64_t sink = 128, std::int64_t recent = 256) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  for (std::int64_t i = 0; i < spec.n_layers * spec.n_kv_heads; ++i) {
    if (i % spec.n_kv_heads >= n_retrieval) {
      roles.roles[static_cast<std::size_t>(i)] = HeadRole::kStreaming;
    }
  }
  roles.sink = sink;
  roles.recent = recent;
  return duo_attention_heads(spec, roles);
}

// A plan that can be made.
inline Plan plan_of(const PlanRequest& request) { return std::get<Plan>(make_plan(request)); }

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Llama-3-8B with half of the heads retrieval heads, a document of a million tokens.
inline PlanRequest million_tokens(ClusterSpec cluster) {
  PlanRequest request;
  request.spec = llama3_8b();
  request.heads = first_heads(request.spec, 4);
  request.cluster = std::move(cluster);
  request.workload.document_tokens = 1 << 20;
  return request;
}

}  // namespace longhaul::test
