// Bytes that a rank reads from memory in a decode step: what bounds decoding. A rank reads the
// projections of the heads whose blocks it holds, those blocks, its columns of the FFN and its rows
// of the output head. Every sequence's attention reads the blocks for itself, shared ones too.
#pragma once
#include <cstdint>

#include "base/ids.h"
#include "base/indexed_vector.h"
#include "model/model_spec.h"
#include "partition/plan.h"
#include "partition/workload.h"

namespace longhaul {

// Attention of one layer, added to the bytes of each rank of the cluster.
void add_attention_reads(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                         const Workload& workload, LayerId layer, std::int64_t batch_size,
                         std::int64_t n_tokens, IndexedVector<Rank, double>& bytes);

// One column of d_ff in one layer; one row of the output head.
double ffn_column_bytes(const ModelSpec& spec, DType dtype);
double vocab_row_bytes(const ModelSpec& spec, DType dtype);

}  // namespace longhaul
