#include "model/heads/head_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

std::int64_t own_window(const ModelSpec& spec, LayerId layer) {
  const auto i = static_cast<std::size_t>(layer.value);
  return i < spec.attention_window.size() ? spec.attention_window[i] : ModelSpec::kNoWindow;
}

// Of a model whose heads merge tokens, where `asked` is what they were to do.
HeadTable merging_table(const ModelSpec& spec, const HeadTable& asked) {
  if (!(asked == HeadTable(spec.n_layers, spec.n_kv_heads))) {
    throw Error(ErrorCode::kInvalidArgument,
                "this model merges tokens (DMC; dmc_window_size in its config.json), and its heads "
                "cannot keep a window instead: leave out head profiles and other methods");
  }
  return HeadTable(spec.n_layers, spec.n_kv_heads, {.write = Write::kMergeIntoOpenSlot});
}

// A table from what `policy_of(layer, kv_head)` says where the model leaves the choice.
template <typename PolicyOf>
HeadTable make_table(const ModelSpec& spec, const PolicyOf& policy_of) {
  HeadTable table(spec.n_layers, spec.n_kv_heads);
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    const std::int64_t window = own_window(spec, layer);
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      table.set(layer, kv_head,
                window == ModelSpec::kNoWindow ? policy_of(layer, kv_head)
                                               : HeadPolicy{.see = SeeModelWindow{window}});
    }
  }
  return spec.token_merging ? merging_table(spec, table) : table;
}

std::string name_of_head(LayerId layer, KvHeadId kv_head) {
  return fmt::format("layer {}, KV head {}", layer.value, kv_head.value);
}

std::int64_t layer_count(const HeadTable& heads, LayerId layer) {
  std::int64_t n = 0;
  for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
    n += heads.window(layer, kv_head).is_unlimited() ? 1 : 0;
  }
  return n;
}

// "512 of a text's tokens", "25 % of ...", or from the least to the most.
std::string budgets_in_words(const HeadTable& heads) {
  std::optional<KeepBudget> least;
  std::optional<KeepBudget> most;
  const auto size = [](const KeepBudget& keep) {
    return keep.share > 0 ? keep.share : static_cast<double>(keep.n_tokens);
  };
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep);
      if (keep == nullptr) continue;
      if (!least || size(*keep) < size(*least)) least = *keep;
      if (!most || size(*keep) > size(*most)) most = *keep;
    }
  }
  if (most->recover) {
    return fmt::format("as many as recover {:.3g} % of a text's attention",
                       100 * most->recover->threshold);
  }
  const auto words = [](const KeepBudget& keep) {
    return keep.share > 0 ? fmt::format("{:.3g} %", 100 * keep.share)
                          : fmt::format("{}", keep.n_tokens);
  };
  if (words(*least) == words(*most)) return words(*least) + " of a text's tokens";
  return fmt::format("{} to {} of a text's tokens", words(*least), words(*most));
}

std::string_view reason_in_words(const HeadTable& heads) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep);
      if (keep != nullptr && std::holds_alternative<ObserveKeys>(keep->observe))
        return "whose keys are most distinct";
    }
  }
  return "that get most attention";
}

// One set of angles turns all queries back (worker/attention/in_cache_sinks.h).
void require_one_in_cache_window(const HeadTable& heads) {
  std::optional<KeyWindow> window;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (sink_positions_of(heads.at(layer, kv_head)) != SinkPositions::kInCache) continue;
      const KeyWindow here = heads.window(layer, kv_head);
      if (window && *window != here) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: heads with positions in the cache must all keep one window",
                                name_of_head(layer, kv_head)));
      }
      window = here;
    }
  }
}

void require_all_merge(const HeadTable& heads) {
  if (!heads.merges_tokens()) return;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (heads.at(layer, kv_head).write == Write::kMergeIntoOpenSlot) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: does not merge tokens (DMC), others do: all heads of a model do "
                              "or none",
                              name_of_head(layer, kv_head)));
    }
  }
}

std::string what_is_kept(const HeadTable& heads) {
  const std::int64_t n_heads = heads.n_layers() * heads.n_kv_heads();
  const std::int64_t n_all = heads.count(HeadKind::kRetrieval);
  if (const std::int64_t n_chosen = heads.count_chosen(); n_chosen > 0) {
    return fmt::format("{} of {} KV heads keep tokens {}, {}", n_chosen, n_heads,
                       reason_in_words(heads), budgets_in_words(heads));
  }
  if (heads.merges_tokens())
    return fmt::format("all {} KV heads merge tokens into slots (DMC)", n_heads);
  if (n_all == n_heads) return fmt::format("all {} KV heads keep every token", n_heads);
  std::string text = fmt::format("{} of {} KV heads keep every token", n_all, n_heads);
  std::string_view joint = ", the others";
  for (const KeyWindow& window : heads.windows()) {
    text += fmt::format("{} the first {} and last {}", std::exchange(joint, " or"), window.sink,
                        window.recent);
    if (window.slide > 1) text += fmt::format(" ({} leave at once)", window.slide);
  }
  return text;
}

}  // namespace

HeadTable::HeadTable(std::int64_t n_layers, std::int64_t n_kv_heads, const HeadPolicy& policy)
    : n_layers_(n_layers), n_kv_heads_(n_kv_heads) {
  require(n_layers >= 0 && n_kv_heads >= 0,
          fmt::format("heads of {} layers of {} KV heads", n_layers, n_kv_heads));
  validate(policy);
  policies_.assign(static_cast<std::size_t>(n_layers * n_kv_heads), policy);
}

void HeadTable::set(LayerId layer, KvHeadId kv_head, const HeadPolicy& policy) {
  validate(policy);
  policies_[index(layer, kv_head)] = policy;
}

std::int64_t HeadTable::count(HeadKind kind) const {
  return std::count_if(policies_.begin(), policies_.end(),
                       [&](const HeadPolicy& policy) { return kind_of(policy) == kind; });
}

std::vector<KeyWindow> HeadTable::windows() const {
  std::vector<KeyWindow> windows;
  for (const HeadPolicy& policy : policies_) {
    const KeyWindow window = window_of(policy);
    if (window.is_unlimited()) continue;
    if (std::find(windows.begin(), windows.end(), window) == windows.end())
      windows.push_back(window);
  }
  return windows;
}

std::int64_t HeadTable::count_chosen() const {
  return std::count_if(policies_.begin(), policies_.end(), [](const HeadPolicy& policy) {
    return std::holds_alternative<KeepBudget>(policy.keep);
  });
}

bool HeadTable::merges_tokens() const {
  return std::any_of(policies_.begin(), policies_.end(), [](const HeadPolicy& policy) {
    return policy.write == Write::kMergeIntoOpenSlot;
  });
}

bool HeadTable::cuts_documents() const {
  return std::any_of(policies_.begin(), policies_.end(), is_cut_after_document);
}

bool HeadTable::leaves_rest() const {
  return std::any_of(policies_.begin(), policies_.end(),
                     [](const HeadPolicy& policy) { return policy.rest != Rest::kNothing; });
}

std::int64_t HeadTable::count_paged() const {
  return std::count_if(policies_.begin(), policies_.end(), [](const HeadPolicy& policy) {
    return std::holds_alternative<ReadTopPages>(policy.choose);
  });
}

bool HeadTable::chooses_in_answers() const {
  return std::any_of(policies_.begin(), policies_.end(), [](const HeadPolicy& policy) {
    const auto* keep = std::get_if<KeepBudget>(&policy.keep);
    return (keep != nullptr && keep->when != KeepWhen::kAfterDocument) ||
           std::holds_alternative<ReadTopPages>(policy.choose);
  });
}

bool HeadTable::needs_token_classes() const {
  return std::any_of(policies_.begin(), policies_.end(), [](const HeadPolicy& policy) {
    const auto* keep = std::get_if<KeepBudget>(&policy.keep);
    return keep != nullptr && keep->recover.has_value();
  });
}

bool HeadTable::can_take_back() const {
  return std::none_of(policies_.begin(), policies_.end(), [](const HeadPolicy& policy) {
    const auto* keep = std::get_if<KeepBudget>(&policy.keep);
    return (keep != nullptr && keep->when == KeepWhen::kAfterToken) ||
           std::holds_alternative<ReadTopPages>(policy.choose) || policy.rest != Rest::kNothing ||
           policy.write != Write::kAppend;
  });
}

HeadTable dense_heads(const ModelSpec& spec) {
  return make_table(spec, [](LayerId, KvHeadId) { return HeadPolicy{}; });
}

HeadTable streaming_heads(const ModelSpec& spec, const SeeSinkRecent& see) {
  return make_table(spec, [&](LayerId, KvHeadId) { return HeadPolicy{.see = see}; });
}

HeadTable duo_attention_heads(const ModelSpec& spec, const HeadRoles& roles) {
  require(roles.n_layers == spec.n_layers && roles.n_kv_heads == spec.n_kv_heads &&
              roles.roles.size() == static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads),
          fmt::format("head roles are for {} layers of {} KV heads, the model has {} of {}",
                      roles.n_layers, roles.n_kv_heads, spec.n_layers, spec.n_kv_heads));
  const SeeSinkRecent window{roles.sink, roles.recent, roles.sink_positions};
  return make_table(spec, [&](LayerId layer, KvHeadId kv_head) {
    return roles.role(layer, kv_head) == HeadRole::kRetrieval ? HeadPolicy{}
                                                              : HeadPolicy{.see = window};
  });
}

void require_runnable(const HeadTable& heads, RunsOn where) {
  require_one_in_cache_window(heads);
  require_all_merge(heads);
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (const auto part = unsupported_part(heads.at(layer, kv_head))) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{}: {} cannot be run yet", name_of_head(layer, kv_head), *part));
      }
    }
  }
  if (where == RunsOn::kOneRank) return;
  if (const auto why = why_not_on_ring(heads)) throw Error(ErrorCode::kInvalidArgument, *why);
}

std::optional<std::string> why_not_on_ring(const HeadTable& heads) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    std::optional<KeyWindow> window;
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const KeyWindow here = heads.window(layer, kv_head);
      if (here.is_unlimited()) continue;
      if (window && *window != here) {
        return fmt::format(
            "{}: sees {} + {} tokens, another head of the layer {} + {}; on ranks that share a "
            "document all windows of a layer must be equal: take one rank, or a replica for each "
            "(--replicas)",
            name_of_head(layer, kv_head), here.sink, here.recent, window->sink, window->recent);
      }
      window = here;
    }
  }
  return std::nullopt;
}

void require_whole_pages(const HeadTable& heads, std::int64_t block_size) {
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* choose = std::get_if<ReadTopPages>(&heads.at(layer, kv_head).choose);
      require(choose == nullptr || block_size % choose->page_tokens == 0,
              fmt::format("{}: pages of {} tokens do not fill a cache block of {}",
                          name_of_head(layer, kv_head), choose == nullptr ? 0 : choose->page_tokens,
                          block_size));
    }
  }
}

void require_storable(const HeadTable& heads, KvType k_type, KvType v_type) {
  if (!quantises_groups(k_type) && !quantises_groups(v_type)) return;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      if (const auto part = part_of_single_tokens(heads.at(layer, kv_head))) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("{}: {} cannot be run with caches of {}, whose tokens are "
                        "quantised in groups: give another --cache-type-k and --cache-type-v, or "
                        "another method",
                        name_of_head(layer, kv_head), *part, grouped_types(k_type, v_type)));
      }
    }
  }
}

void require_fits(const HeadTable& heads, const ModelSpec& spec) {
  require(heads.n_layers() == spec.n_layers && heads.n_kv_heads() == spec.n_kv_heads,
          fmt::format("the heads' table is for {} layers of {} KV heads, the model has {} of {}",
                      heads.n_layers(), heads.n_kv_heads(), spec.n_layers, spec.n_kv_heads));
  if (heads.merges_tokens() != spec.token_merging.has_value()) {
    throw Error(ErrorCode::kInvalidArgument,
                spec.token_merging
                    ? "the model merges tokens (DMC), and its heads' table does not say so"
                    : "the heads' table merges tokens (DMC), and the model was not made for that: "
                      "its config.json has no dmc_window_size");
  }
}

std::string describe_briefly(const HeadTable& heads) {
  std::string text = what_is_kept(heads);
  if (const std::int64_t n_paged = heads.count_paged(); n_paged > 0)
    text += fmt::format("; {} of them read chosen pages only", n_paged);
  return text;
}

std::string describe(const HeadTable& heads) {
  std::string text = describe_briefly(heads) + "; per layer:";
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    text += fmt::format(" {}", layer_count(heads, layer));
  }
  return text;
}

}  // namespace longhaul
