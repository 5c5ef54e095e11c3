// Which columns of the FFN and which rows of the output head a rank computes in decode. Pure.
#pragma once
#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

enum class DecodeBalance : std::uint8_t {
  kTotalBytes,  // ranks that read many KV bytes get fewer columns: all read about the same in a
                // step
  kEachPhase,   // columns by reading speed alone: best when attention and FFN are strict phases
};

// Sets stage.ffn_slice and, in the last stage, stage.vocab_slice; the homes must be there.
void set_decode_slices(const Plan& plan, const ModelSpec& spec, const ClusterSpec& cluster,
                       const Workload& workload, DecodeBalance balance, Stage& stage);

}  // namespace longhaul
