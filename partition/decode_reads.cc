#include "partition/decode_reads.h"

#include <algorithm>

#include "model/heads/select_tokens.h"
#include "partition/weight_bytes.h"

namespace longhaul {
namespace {

// Cached tokens that an answer's query reads of a head whose sequence has n_tokens: what a method
// keeps of the document or the prompt, and what came since.
std::int64_t n_keys_read(const HeadPolicy& policy, const ModelSpec& spec, const Workload& workload,
                         std::int64_t n_tokens) {
  const std::int64_t n_seen = window_of(policy).n_keys(n_tokens);
  if (const auto* pages = std::get_if<ReadTopPages>(&policy.choose)) {
    // Each query head its own pages: at most so many different ones.
    return std::min(n_seen, spec.gqa_group() * pages->budget_tokens);
  }
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  if (keep == nullptr) return n_seen;
  const std::int64_t n_cut = keep->when == KeepWhen::kAfterDocument
                                 ? std::min(workload.document_tokens, n_tokens)
                                 : n_tokens;
  return std::min(n_seen, budget_of(*keep, n_cut) + n_tokens - n_cut);
}

// Beside them: the bounds of all pages.
double bound_bytes_read(const HeadPolicy& policy, const ModelSpec& spec, std::int64_t n_tokens) {
  const auto* pages = std::get_if<ReadTopPages>(&policy.choose);
  if (pages == nullptr) return 0;
  constexpr std::int64_t kBoundBytes = 2 * 4;  // a smallest and a largest value, floats
  return static_cast<double>(ceil_div(n_tokens, pages->page_tokens) * spec.head_dim * kBoundBytes);
}

}  // namespace

void add_attention_reads(const Plan& plan, const Stage& stage, const ModelSpec& spec,
                         const Workload& workload, LayerId layer, std::int64_t batch_size,
                         std::int64_t n_tokens, IndexedVector<Rank, double>& bytes) {
  const DType dtype = workload.weights(spec);
  const std::int64_t q_rows = spec.gqa_group() * spec.head_dim;
  const auto q_and_o = static_cast<double>(matrix_bytes(q_rows, spec.d_model, dtype) +
                                           matrix_bytes(spec.d_model, q_rows, dtype));
  const auto k_and_v = static_cast<double>(2 * matrix_bytes(spec.head_dim, spec.d_model, dtype));
  for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
    const HeadPolicy& policy = plan.heads.at(layer, kv_head);
    const std::int64_t n_keys = n_keys_read(policy, spec, workload, n_tokens);
    const double cache = static_cast<double>(batch_size) *
                         (static_cast<double>(n_keys) * static_cast<double>(plan.kv.token_bytes()) +
                          bound_bytes_read(policy, spec, n_tokens));
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
  return 3 * static_cast<double>(spec.d_model) * bytes_of_weight(dtype);
}

double vocab_row_bytes(const ModelSpec& spec, DType dtype) {
  return static_cast<double>(spec.d_model) * bytes_of_weight(head_type(dtype));
}

}  // namespace longhaul
