#include "worker/snapshot/saved_state.h"

#include "worker/snapshot/head_loader.h"

namespace longhaul {

SavedLayerState read_saved_state(const SavedHeader& header, LayerId layer) {
  HeadLoader loader(header);
  SavedLayerState state;
  ObservedQueries::Rows queries = loader.queries(layer);
  state.query_positions = std::move(queries.positions);
  state.queries = std::move(queries.q);
  SavedMerging merging = loader.merging(layer);
  state.merging = std::move(merging.tokens);
  state.n_slots = std::move(merging.n_slots);
  for (const KvHeadId kv_head : IdRange<KvHeadId>(header.n_kv_heads)) {
    SavedHeadState& head = state.heads.emplace_back();
    head.attention = loader.attention(layer, kv_head, HeadLoader::AttentionOf::kAllQueries);
    head.local_attention = loader.attention(layer, kv_head, HeadLoader::AttentionOf::kLocalQueries);
    GoneSums gone = loader.gone(layer, kv_head);
    head.n_gone = gone.n;
    head.gone = {std::move(gone.k), std::move(gone.v)};
    head.recipe = read_saved_recipe(header, layer, kv_head);
  }
  return state;
}

std::vector<float> read_saved_last_hidden(const SavedHeader& header) {
  return HeadLoader(header).last_hidden();
}

}  // namespace longhaul
