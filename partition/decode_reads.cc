#include "partition/decode_reads.h"

#include <algorithm>

#include "model/heads/kept_blocks.h"
#include "partition/weight_bytes.h"

namespace longhaul {

void add_attention_reads(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                         const Workload& workload, LayerId layer, std::int64_t batch_size,
                         std::int64_t n_tokens, IndexedVector<Rank, double>& bytes) {
  const DType dtype = workload.weights(spec);
  const std::int64_t q_rows = spec.gqa_group() * spec.head_dim;
  const auto q_and_o = static_cast<double>(matrix_bytes(q_rows, spec.d_model, dtype) +
                                           matrix_bytes(spec.d_model, q_rows, dtype));
  const auto k_and_v = static_cast<double>(2 * matrix_bytes(spec.head_dim, spec.d_model, dtype));
  for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
    const KeyWindow kept = plan.heads.window(layer, kv_head);
    const std::int64_t n_keys = kept.n_keys(n_tokens);
    const double cache =
        static_cast<double>(n_keys * batch_size) * static_cast<double>(plan.kv.token_bytes());
    const Home& home = stage.home_of(layer, kv_head);
    double whole = 0;
    for (const HomeShare& share : home.shares) whole += static_cast<double>(share.weight);
    for (const HomeShare& share : home.shares) {
      const double part = static_cast<double>(share.weight) / whole;
      bytes[share.rank] += q_and_o + part * (k_and_v + cache);
    }
  }
}

double ffn_column_bytes(const ModelSpec& spec, DType dtype) {
  return 3 * static_cast<double>(spec.d_model) * static_cast<double>(size_of(dtype));
}

double vocab_row_bytes(const ModelSpec& spec, DType dtype) {
  return static_cast<double>(spec.d_model) * static_cast<double>(size_of(dtype));
}

}  // namespace longhaul
