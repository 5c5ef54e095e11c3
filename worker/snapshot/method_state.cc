#include "worker/snapshot/method_state.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {
namespace {

void load_sums(HeadLoader& loader, const SavedHeader& header, LayerId layer, KvHeadId kv_head,
               SequenceCache& cache) {
  const std::map<std::int64_t, double> saved = loader.attention(layer, kv_head);
  if (saved.empty()) return;
  const std::vector<TokenPos> positions = cache.head(layer, kv_head).positions();
  const std::span<double> sums =
      cache.attention_mass(layer, kv_head).own(static_cast<std::int64_t>(positions.size()));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto found = saved.find(positions[i].value);
    if (found == saved.end()) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{}: layer {}, KV head {}: the sum of attention that the token at {} "
                      "got is missing",
                      header.master.string(), layer.value, kv_head.value, positions[i].value));
    }
    sums[i] = found->second;
  }
}

}  // namespace

std::optional<std::vector<std::int64_t>> chosen_positions(const SavedHeader& header,
                                                          const std::vector<SavedRole>& roles,
                                                          LayerId layer, KvHeadId kv_head) {
  const auto i = static_cast<std::size_t>(layer.value * header.n_kv_heads + kv_head.value);
  if (!roles.at(i).is_chosen()) return std::nullopt;
  return read_saved_positions(header, layer, kv_head);
}

void load_method_state(HeadLoader& loader, const SavedHeader& header, SequenceCache& cache) {
  if (header.is_cut) cache.set_cut();
  if (!header.has_method_state) return;
  const CacheLayout& layout = cache.layout();
  for (const LayerId layer : layout.layer_ids()) {
    const ObservedQueries::Rows queries = loader.queries(layer);
    const auto n = static_cast<std::int64_t>(queries.positions.size());
    if (n > 0) cache.observed().add(layer, queries, n);
    for (const KvHeadId kv_head : layout.kv_head_ids())
      load_sums(loader, header, layer, kv_head, cache);
  }
}

}  // namespace longhaul
