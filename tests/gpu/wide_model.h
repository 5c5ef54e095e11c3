// A small model whose heads are wide enough for the tensor cores' kernels, with retrieval and
// streaming heads.
#pragma once
#include "tests/golden/golden_models.h"
#include "tests/gpu/worker_plays.h"

namespace longhaul::test {

inline ModelSpec wide_spec() {
  ModelSpec spec = tiny_spec();
  spec.n_layers = 2;
  spec.n_heads = 4;
  spec.n_kv_heads = 2;
  spec.head_dim = 64;
  spec.attention_window.assign(2, ModelSpec::kNoWindow);
  return spec;
}

inline MakeConfig wide_model(KvType type, DType weights = DType::kF32) {
  return [=](const DeviceId& device) -> WorkerConfig {
    return {.weights = std::make_shared<const Weights>(
                Weights::synthetic(wide_spec(), weights, 7, device)),
            .device = device,
            .heads = duo_attention_heads(wide_spec(), mixed_roles(wide_spec())),
            .k_type = type,
            .v_type = type,
            .block_size = quantises_groups(type) ? kKvGroup : 16,
            .n_threads = 1};
  };
}

}  // namespace longhaul::test
