// What operators take of GPUs and of their hosts beside their arguments. Bounds, as in
// memory_model.h. Pure.
#pragma once
#include <cstdint>

#include "model/heads/head_table.h"
#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/workload.h"

namespace longhaul {

// What the operators take of a rank's device beside their arguments: of a GPU, keys that attention
// converts, partial states, what keys that heads choose among get of attention, descriptions of
// work. What libraries load (code, contexts) is not counted: headroom is there for it.
std::int64_t scratch_bytes(const RankSpec& rank, const ModelSpec& spec, const HeadTable& heads,
                           const Workload& workload);
// Of the host's memory what a rank on a GPU pins for copies: descriptions of work, which
// scratch_bytes counts on the GPU, and results of operators. No plan limits it.
std::int64_t pinned_bytes(const RankSpec& rank, const ModelSpec& spec, const HeadTable& heads,
                          const Workload& workload);

// Where heads merge tokens: one of them as it was projected, of all heads of a layer; and the
// newest ones of a sequence (worker/kv/merge_state.h), twice as many as a window needs.
std::int64_t raw_row_bytes(const ModelSpec& spec);
std::int64_t raw_tokens_bytes(const ModelSpec& spec);

}  // namespace longhaul
