#include "worker/snapshot/method_state.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "worker/attention/compensation.h"

namespace longhaul {
namespace {

using AttentionOf = HeadLoader::AttentionOf;

// What each token of a head got, where there is anything. `mass` gives whom it goes to.
template <typename Mass>
void load_sums(HeadLoader& loader, const SavedHeader& header, LayerId layer, KvHeadId kv_head,
               AttentionOf of, const SequenceCache& cache, const Mass& mass) {
  const std::map<std::int64_t, double> saved = loader.attention(layer, kv_head, of);
  if (saved.empty()) return;
  const std::vector<TokenPos> positions = cache.head(layer, kv_head).positions();
  const std::span<double> sums = mass().own(static_cast<std::int64_t>(positions.size()));
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

void load_recipe(const SavedHeader& header, LayerId layer, KvHeadId kv_head, SequenceCache& cache) {
  if (const auto recipe = read_saved_recipe(header, layer, kv_head))
    cache.set_recipe(layer, kv_head, *recipe);
}

// What has left the window of a head, where the head is at home here: a window has one home.
void load_gone(HeadLoader& loader, const SavedHeader& header, LayerId layer, KvHeadId kv_head,
               SequenceCache& cache) {
  GoneSums gone = loader.gone(layer, kv_head);
  const CacheLayout& layout = cache.layout();
  const std::int64_t n_gone = layout.leaves_rest(layer, kv_head)
                                  ? layout.window(layer, kv_head).n_gone(header.n_tokens)
                                  : gone.n;
  const std::size_t n_sums = gone.n > 0 ? static_cast<std::size_t>(header.head_dim) : 0;
  if (gone.n != n_gone || gone.k.size() != n_sums || gone.v.size() != n_sums) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: layer {}, KV head {}: the sums of {} tokens are there in place of "
                            "{} that have left its window",
                            header.master.string(), layer.value, kv_head.value, gone.n, n_gone));
  }
  if (gone.n > 0) cache.gone(layer, kv_head) = std::move(gone);
}

// On every rank, of all KV heads.
void load_merging(HeadLoader& loader, const SavedHeader& header, LayerId layer,
                  SequenceCache& cache) {
  if (!cache.layout().heads().merges_tokens()) return;
  SavedMerging saved = loader.merging(layer);
  if (static_cast<std::int64_t>(saved.n_slots.size()) != header.n_kv_heads) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: layer {}: the tokens that later ones may merge with are missing",
                            header.master.string(), layer.value));
  }
  MergeState& state = cache.merge_state(layer);
  state.last.set(saved.layout, saved.tokens);
  state.n_slots = std::move(saved.n_slots);
}

const SavedRole& role_of(const SavedHeader& header, const std::vector<SavedRole>& roles,
                         LayerId layer, KvHeadId kv_head) {
  return roles.at(static_cast<std::size_t>(layer.value * header.n_kv_heads + kv_head.value));
}

}  // namespace

std::optional<std::int64_t> n_saved_slots(const SavedHeader& header,
                                          const std::vector<SavedRole>& roles, LayerId layer,
                                          KvHeadId kv_head) {
  const SavedRole& role = role_of(header, roles, layer, kv_head);
  return role.has_slots() ? std::optional(role.n_slots) : std::nullopt;
}

std::optional<ChosenTokens> chosen_tokens(const SavedHeader& header,
                                          const std::vector<SavedRole>& roles, LayerId layer,
                                          KvHeadId kv_head) {
  if (!role_of(header, roles, layer, kv_head).is_chosen()) return std::nullopt;
  return ChosenTokens{.positions = read_saved_positions(header, layer, kv_head),
                      .seen_by = read_saved_seen_by(header, layer, kv_head)};
}

void load_method_state(HeadLoader& loader, const SavedHeader& header, const IsHome& is_home,
                       SequenceCache& cache) {
  if (header.is_cut) cache.set_cut();
  const HeadTable& heads = cache.layout().heads();
  if (!header.has_method_state && !heads.leaves_rest() && !heads.merges_tokens()) return;
  const CacheLayout& layout = cache.layout();
  for (const LayerId layer : layout.layer_ids()) {
    const ObservedQueries::Rows queries = loader.queries(layer);
    const auto n = static_cast<std::int64_t>(queries.positions.size());
    if (n > 0) cache.observed().add(layer, queries, n);
    load_merging(loader, header, layer, cache);
    for (const KvHeadId kv_head : layout.kv_head_ids()) {
      load_sums(loader, header, layer, kv_head, AttentionOf::kAllQueries, cache,
                [&]() -> AttentionMass& { return cache.attention_mass(layer, kv_head); });
      load_sums(loader, header, layer, kv_head, AttentionOf::kLocalQueries, cache,
                [&]() -> AttentionMass& { return cache.local_mass(layer, kv_head); });
      if (header.is_cut) load_recipe(header, layer, kv_head, cache);
      if (is_home(layer, kv_head, 0)) load_gone(loader, header, layer, kv_head, cache);
    }
  }
}

}  // namespace longhaul
