#include "worker/attention/accumulate.h"

#include <algorithm>
#include <vector>

#include "kernels/key_scores.h"
#include "model/heads/choice_bytes.h"

namespace longhaul {
namespace {

// How many of these queries are scored at once: the same on every rank, whatever it holds of the
// keys.
std::int64_t queries_at_once(const ModelSpec& spec, const ObservedQueries::Rows& rows) {
  const std::int64_t n_keys = rows.positions.empty() ? 1 : rows.positions.back() + 1;
  return queries_scored_at_once(spec.n_heads, n_keys);
}

const KeepBudget* budget_that_observes_all(const HeadPolicy& policy) {
  const auto* keep = std::get_if<KeepBudget>(&policy.keep);
  const bool observes = keep != nullptr && std::holds_alternative<ObserveAll>(keep->observe);
  return observes ? keep : nullptr;
}

// Those of the layer that still choose by what is summed up.
std::vector<KvHeadId> observing_heads(const AccumulateArgs& args, const SequenceCache& cache) {
  std::vector<KvHeadId> heads;
  for (const KvHeadId kv_head : args.layout.kv_head_ids()) {
    const auto* keep = budget_that_observes_all(args.layout.policy(args.layer, kv_head));
    if (keep == nullptr) continue;
    if (keep->when == KeepWhen::kAfterDocument && cache.is_cut()) continue;
    const std::optional<Recipe> recipe = cache.recipe(args.layer, kv_head);
    if (!recipe || (keep->when == KeepWhen::kAfterToken && recipe->asks_for_attention()))
      heads.push_back(kv_head);
  }
  return heads;
}

// The local part of a head's sums, while its recipe is not found yet.
void add_local_masses(const AccumulateArgs& args, KvHeadId kv_head, Extent rows,
                      const KeyScores& scores, std::span<const ExpSum> sums, SequenceCache& cache) {
  const auto* keep = budget_that_observes_all(args.layout.policy(args.layer, kv_head));
  if (!keep->recover || cache.recipe(args.layer, kv_head)) return;
  const std::vector<TokenPos> keys = cache.head(args.layer, kv_head).positions();
  std::vector<std::int64_t> first_keys;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t position = args.rows.positions[static_cast<std::size_t>(row)];
    const TokenPos first{position - local_window(*keep->recover, position) + 1};
    first_keys.push_back(std::lower_bound(keys.begin(), keys.end(), first) - keys.begin());
  }
  add_key_masses(args.stream, scores, sums,
                 cache.local_mass(args.layer, kv_head).own(scores.n_keys), first_keys);
}

KeyScores score(const AccumulateArgs& args, KvHeadId kv_head, Extent rows,
                const SequenceCache& cache) {
  const ModelSpec& spec = args.weights.spec();
  const std::int64_t row_size = spec.n_heads * spec.head_dim;
  const float* first =
      args.rows.q.data() + rows.begin * row_size + kv_head.value * spec.gqa_group() * spec.head_dim;
  return score_keys(
      args.stream,
      {.shape = args.layout.shape(),
       .sm_scale = spec.sm_scale(),
       .q = {first, {rows.size(), spec.gqa_group(), spec.head_dim}, {row_size, spec.head_dim, 1}},
       .q_positions = std::span(args.rows.positions)
                          .subspan(static_cast<std::size_t>(rows.begin),
                                   static_cast<std::size_t>(rows.size())),
       .blocks = cache.head(args.layer, kv_head).blocks()});
}

// Sums of all heads' scores, head after head, merged over ranks.
std::vector<ExpSum> sums_of_all(std::span<const KeyScores> heads, const GatherBytes& gather) {
  std::vector<ExpSum> own;
  for (const KeyScores& head : heads) own.insert(own.end(), head.sums.begin(), head.sums.end());
  std::vector<ExpSum> all(own.size());
  for (const auto& bytes : gather(bytes_of(std::span<const ExpSum>(own)))) {
    const std::vector<ExpSum> of_rank = values_in<ExpSum>(bytes);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = merged(all[i], of_rank.at(i));
  }
  return all;
}

}  // namespace

bool observes_all(const CacheLayout& layout, LayerId layer) {
  bool any = false;
  for (const KvHeadId kv_head : layout.kv_head_ids())
    any = any || budget_that_observes_all(layout.policy(layer, kv_head)) != nullptr;
  return any;
}

bool observes_all(const CacheLayout& layout) {
  bool any = false;
  for (const LayerId layer : layout.layer_ids()) any = any || observes_all(layout, layer);
  return any;
}

void accumulate(const AccumulateArgs& args, SequenceCache& cache) {
  const std::vector<KvHeadId> kv_heads = observing_heads(args, cache);
  if (kv_heads.empty()) return;
  const auto n_rows = static_cast<std::int64_t>(args.rows.positions.size());
  const std::int64_t n_at_once = queries_at_once(args.weights.spec(), args.rows);
  for (std::int64_t begin = 0; begin < n_rows; begin += n_at_once) {
    const Extent rows{begin, std::min(n_rows, begin + n_at_once)};
    std::vector<KeyScores> scores;
    for (const KvHeadId kv_head : kv_heads) scores.push_back(score(args, kv_head, rows, cache));
    std::vector<ExpSum> sums = sums_of_all(scores, args.gather);
    std::size_t first = 0;
    for (std::size_t i = 0; i < kv_heads.size(); ++i) {
      const std::span<double> masses =
          cache.attention_mass(args.layer, kv_heads[i]).own(scores[i].n_keys);
      const auto of_head = std::span(sums).subspan(first, scores[i].sums.size());
      add_sink_logits(sink_logits_of(args.weights, args.layer, kv_heads[i]), of_head);
      add_key_masses(args.stream, scores[i], of_head, masses);
      add_local_masses(args, kv_heads[i], rows, scores[i], of_head, cache);
      first += scores[i].sums.size();
    }
  }
}

}  // namespace longhaul
