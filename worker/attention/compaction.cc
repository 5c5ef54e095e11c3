#include "worker/attention/compaction.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "kernels/key_directions.h"
#include "kernels/key_scores.h"
#include "model/heads/select_tokens.h"

namespace longhaul {
namespace {

const KeepBudget* budget_in(const HeadPolicy& policy) {
  return std::get_if<KeepBudget>(&policy.keep);
}

// One head's tokens on all ranks, in the order of their positions.
struct GatheredTokens {
  struct Place {
    std::int64_t position;
    std::size_t rank;
    std::size_t slot;
  };
  std::vector<Place> places;
  std::vector<std::int64_t> own;  // this rank's slots among all tokens
};

void sort_by_position(std::vector<GatheredTokens::Place>& places) {
  const auto is_before = [](const GatheredTokens::Place& a, const GatheredTokens::Place& b) {
    return a.position < b.position;
  };
  if (!std::is_sorted(places.begin(), places.end(), is_before))
    std::sort(places.begin(), places.end(), is_before);
}

class LayerCompaction {
 public:
  LayerCompaction(const CompactionArgs& args, LayerId layer, SequenceCache& cache)
      : args_(args), layer_(layer), cache_(cache) {}

  // Whether there are heads that choose now.
  bool run() {
    bool any_recipe = false;
    std::vector<KvHeadId> kv_heads;
    std::vector<std::size_t> n_choosers;         // of each
    std::vector<std::vector<std::int64_t>> own;  // of each
    std::vector<KeepBudget> budgets;             // of the choosers
    std::vector<TokenScores> scores;             // of the choosers
    for (const KvHeadId kv_head : args_.layout.kv_head_ids()) {
      const KeepBudget* budget = budget_in(args_.layout.policy(layer_, kv_head));
      if (budget == nullptr || !chooses_now(*budget)) continue;
      const std::optional<Recipe> recipe = cache_.recipe(layer_, kv_head);
      if (recipe && recipe->kind == RecipeKind::kAll) continue;
      GatheredTokens tokens = gather_tokens(kv_head);
      if (tokens.places.empty()) continue;
      if (budget->recover) {
        keep_by_recipe(kv_head, *budget, tokens);
        any_recipe = true;
        continue;
      }
      kv_heads.push_back(kv_head);
      std::vector<TokenScores> choosers =
          choosers_of(*budget, scores_of_tokens(kv_head, *budget, tokens));
      own.push_back(std::move(tokens.own));
      n_choosers.push_back(choosers.size());
      budgets.insert(budgets.end(), choosers.size(), *budget);
      std::move(choosers.begin(), choosers.end(), std::back_inserter(scores));
    }
    const auto chosen = select_tokens(budgets, scores);
    std::size_t first = 0;
    for (std::size_t i = 0; i < kv_heads.size(); ++i) {
      keep(kv_heads[i], held_of(std::span(chosen).subspan(first, n_choosers[i])), own[i],
           n_choosers[i] > 1);
      first += n_choosers[i];
    }
    return any_recipe || !kv_heads.empty();
  }

 private:
  bool chooses_now(const KeepBudget& budget) const {
    const bool begins =
        args_.when == KeepWhen::kAfterPrompt && budget.when == KeepWhen::kAfterToken;
    return budget.when == args_.when || begins;
  }

  // What this rank's slots got: [gqa_group, slots], or of the group together.
  std::vector<float> masses_of(KvHeadId kv_head, const KeepBudget& budget) const {
    if (std::holds_alternative<ObserveAll>(budget.observe)) {
      const std::int64_t n_slots = cache_.head(layer_, kv_head).n_slots();
      std::vector<float> masses;
      masses.reserve(static_cast<std::size_t>(n_slots));
      for (const double sum : cache_.attention_mass(layer_, kv_head).own(n_slots))
        masses.push_back(static_cast<float>(sum));
      return masses;
    }
    if (std::holds_alternative<ObserveKeys>(budget.observe)) return distinctions_of(kv_head);
    const KeyScores keys = score_own(kv_head, budget);
    return key_masses(args_.stream, keys, sums_of_all(kv_head, keys));
  }

  // How little each of this rank's keys points where those of all ranks do: [slots].
  std::vector<float> distinctions_of(KvHeadId kv_head) const {
    const KeyDirectionsArgs keys{.shape = args_.layout.shape(),
                                 .blocks = cache_.head(layer_, kv_head).blocks()};
    const std::vector<std::int64_t> own = sum_key_directions(args_.stream, keys);
    std::vector<std::int64_t> all(own.size());
    for (const auto& bytes : args_.gather(bytes_of(std::span(own)))) {
      const auto of_rank = values_in<std::int64_t>(bytes);
      for (std::size_t d = 0; d < all.size(); ++d) all[d] += of_rank.at(d);
    }
    return key_distinctions(args_.stream, keys, all);
  }

  // The last queries of the layer that the budget asks for.
  KeyScores score_own(KvHeadId kv_head, const KeepBudget& budget) const {
    const ModelSpec& spec = args_.weights.spec();
    const ObservedQueries::Rows* rows = cache_.observed().of(layer_);
    const auto n_there = rows == nullptr ? 0 : static_cast<std::int64_t>(rows->positions.size());
    const std::int64_t n = std::min(n_there, std::get<ObserveLast>(budget.observe).n_queries);
    const std::int64_t row_size = spec.n_heads * spec.head_dim;
    const float* first = n == 0 ? nullptr
                                : rows->q.data() + (n_there - n) * row_size +
                                      kv_head.value * spec.gqa_group() * spec.head_dim;
    return score_keys(
        args_.stream,
        {.shape = args_.layout.shape(),
         .sm_scale = spec.sm_scale(),
         .q = {first, {n, spec.gqa_group(), spec.head_dim}, {row_size, spec.head_dim, 1}},
         .q_positions = n == 0 ? std::span<const std::int64_t>()
                               : std::span(rows->positions).last(static_cast<std::size_t>(n)),
         .blocks = cache_.head(layer_, kv_head).blocks()});
  }

  std::vector<ExpSum> sums_of_all(KvHeadId kv_head, const KeyScores& own) const {
    std::vector<ExpSum> all(own.sums.size());
    for (const auto& bytes : args_.gather(bytes_of(std::span(std::as_const(own.sums))))) {
      const std::vector<ExpSum> of_rank = values_in<ExpSum>(bytes);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = merged(all[i], of_rank.at(i));
    }
    add_sink_logits(sink_logits_of(args_.weights, layer_, kv_head), all);
    return all;
  }

  GatheredTokens gather_tokens(KvHeadId kv_head) const {
    using Place = GatheredTokens::Place;
    std::vector<std::int64_t> mine;
    for (const TokenPos position : cache_.head(layer_, kv_head).positions())
      mine.push_back(position.value);
    GatheredTokens tokens;
    const auto positions_of = args_.gather(bytes_of(std::span(std::as_const(mine))));
    for (std::size_t rank = 0; rank < positions_of.size(); ++rank) {
      const auto there = values_in<std::int64_t>(positions_of[rank]);
      for (std::size_t i = 0; i < there.size(); ++i) tokens.places.push_back({there[i], rank, i});
    }
    sort_by_position(tokens.places);
    tokens.own.resize(mine.size());
    for (std::size_t token = 0; token < tokens.places.size(); ++token) {
      const Place& place = tokens.places[token];
      // A token is with one rank.
      if (place.slot < mine.size() && mine[place.slot] == place.position)
        tokens.own[place.slot] = static_cast<std::int64_t>(token);
    }
    return tokens;
  }

  // What all ranks have of each token in so many rows, where this one has `mine` of its slots:
  // [n_rows, n_tokens].
  template <typename T>
  std::vector<T> gather_values(const GatheredTokens& tokens, std::span<const T> mine,
                               std::size_t n_rows) const {
    std::vector<std::vector<T>> of_ranks;
    for (const auto& bytes : args_.gather(bytes_of(mine))) of_ranks.push_back(values_in<T>(bytes));
    const std::size_t n_tokens = tokens.places.size();
    std::vector<T> values(n_rows * n_tokens);
    for (std::size_t t = 0; t < n_tokens; ++t) {
      const std::vector<T>& there = of_ranks[tokens.places[t].rank];
      for (std::size_t row = 0; row < n_rows; ++row)
        values[row * n_tokens + t] = there[row * (there.size() / n_rows) + tokens.places[t].slot];
    }
    return values;
  }

  TokenScores scores_of_tokens(KvHeadId kv_head, const KeepBudget& budget,
                               const GatheredTokens& tokens) const {
    const std::vector<float> masses = masses_of(kv_head, budget);
    const auto n_rows = static_cast<std::size_t>(
        std::holds_alternative<ObserveLast>(budget.observe) ? args_.weights.spec().gqa_group() : 1);
    return {.n_tokens = static_cast<std::int64_t>(tokens.places.size()),
            .masses = gather_values<float>(tokens, masses, n_rows)};
  }

  // Finds the head's recipe the first time, and goes by it.
  void keep_by_recipe(KvHeadId kv_head, const KeepBudget& budget, const GatheredTokens& tokens) {
    const auto sums_of = [&](AttentionMass& mass) {
      const std::int64_t n_slots = cache_.head(layer_, kv_head).n_slots();
      return gather_values<double>(tokens, mass.own(n_slots), 1);
    };
    TokenClasses classes;
    for (const auto& place : tokens.places) {
      classes.push_back(place.position < budget.n_sink ? TokenClass::kSpecial
                                                       : cache_.classes().at(place.position));
    }
    const std::vector<double> masses = sums_of(cache_.attention_mass(layer_, kv_head));
    std::optional<Recipe> recipe = cache_.recipe(layer_, kv_head);
    if (!recipe) {
      const std::vector<double> local = sums_of(cache_.local_mass(layer_, kv_head));
      recipe = find_recipe(*budget.recover, {classes, masses, local});
      cache_.set_recipe(layer_, kv_head, *recipe);
    }
    const std::vector<std::int64_t> chosen = tokens_of(*recipe, {classes, masses});
    keep(kv_head, held_of({&chosen, 1}), tokens.own, /*chose_apart=*/false);
  }

  // `held` as of held_of().
  void keep(KvHeadId kv_head, std::span<const std::uint64_t> held,
            std::span<const std::int64_t> own, bool chose_apart) {
    const std::vector<SeenBy> seen_before =
        chose_apart ? cache_.head(layer_, kv_head).seen_by() : std::vector<SeenBy>();
    std::vector<SlotIndex> slots;
    std::vector<SeenBy> seen_by;
    SlotIndex gone{0};
    for (std::size_t slot = 0; slot < own.size(); ++slot) {
      const SlotIndex index{static_cast<std::int64_t>(slot)};
      const auto token = static_cast<std::size_t>(own[slot]);
      if (token >= held.size() || held[token] == 0) {
        gone = index;
        continue;
      }
      slots.push_back(index);
      if (chose_apart) seen_by.push_back(held[token] & seen_before[slot]);
    }
    if (args_.when == KeepWhen::kAfterToken && slots.size() == own.size())
      return cache_.head(layer_, kv_head).list();
    // One for one moves a token, not the cache.
    const bool drops_one = args_.when == KeepWhen::kAfterToken && slots.size() + 1 == own.size();
    if (drops_one ? cache_.forget(layer_, kv_head, gone)
                  : cache_.keep(layer_, kv_head, slots, seen_by))
      return;
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("no cache block is free to gather the {} tokens that layer {}, KV "
                            "head {} keeps",
                            slots.size(), layer_.value, kv_head.value));
  }

  const CompactionArgs& args_;
  LayerId layer_;
  SequenceCache& cache_;
};

bool is_every_token(const HeadPolicy& policy) {
  const KeepBudget* budget = budget_in(policy);
  return budget != nullptr && budget->when == KeepWhen::kAfterToken;
}

}  // namespace

std::int64_t n_observed_queries(const CacheLayout& layout, LayerId layer) {
  std::int64_t n = 0;
  for (const KvHeadId kv_head : layout.kv_head_ids()) {
    const KeepBudget* budget = budget_in(layout.policy(layer, kv_head));
    if (budget == nullptr) continue;
    if (const auto* last = std::get_if<ObserveLast>(&budget->observe))
      n = std::max(n, last->n_queries);
  }
  return n;
}

std::int64_t n_observed_queries(const CacheLayout& layout) {
  std::int64_t n = 0;
  for (const LayerId layer : layout.layer_ids()) n = std::max(n, n_observed_queries(layout, layer));
  return n;
}

bool chooses_every_token(const CacheLayout& layout, LayerId layer, KvHeadId kv_head) {
  return is_every_token(layout.policy(layer, kv_head));
}

bool chooses_every_token(const CacheLayout& layout, LayerId layer) {
  bool any = false;
  for (const KvHeadId kv_head : layout.kv_head_ids())
    any = any || chooses_every_token(layout, layer, kv_head);
  return any;
}

ObservedQueries::Rows rows_on_host(StreamRef stream, const TensorView<const float, 3>& q,
                                   std::span<const std::int64_t> positions, Extent rows) {
  ObservedQueries::Rows result;
  const auto first = positions.begin() + static_cast<std::ptrdiff_t>(rows.begin);
  result.positions.assign(first, first + static_cast<std::ptrdiff_t>(rows.size()));
  const TensorView<const float, 3> part = q.slice(0, rows);
  result.q.resize(static_cast<std::size_t>(part.size()));
  std::vector<HostCopy> copies;  // one for each row, or one for rows without gaps
  const std::int64_t n_copies = part.is_contiguous() ? 1 : part.dim(0);
  const std::size_t n_values =
      result.q.size() / static_cast<std::size_t>(std::max<std::int64_t>(n_copies, 1));
  for (std::int64_t i = 0; i < n_copies; ++i) {
    copies.push_back(
        {.to = std::as_writable_bytes(
             std::span(result.q).subspan(static_cast<std::size_t>(i) * n_values, n_values)),
         .from = reinterpret_cast<const std::byte*>(part.data() + i * part.stride(0))});
  }
  copy_to_host(stream, copies);
  return result;
}

// A message is the number of rows, their positions, their queries.
ObservedQueries::Rows gather_rows(const ObservedQueries::Rows& own, const GatherBytes& gather) {
  std::vector<std::int64_t> head{std::ssize(own.positions)};
  head.insert(head.end(), own.positions.begin(), own.positions.end());
  std::vector<std::byte> mine = bytes_of(std::span(std::as_const(head)));
  const auto queries = std::as_bytes(std::span(own.q));
  mine.insert(mine.end(), queries.begin(), queries.end());
  const auto messages = gather(mine);
  struct Row {
    std::int64_t position;
    std::span<const std::byte> q;
  };
  std::vector<Row> rows;
  std::size_t n_values = 0;
  for (const std::span<const std::byte> message : messages) {
    const std::int64_t n = values_in<std::int64_t>(message.first(sizeof(std::int64_t))).front();
    const std::size_t n_head_bytes = static_cast<std::size_t>(1 + n) * sizeof(std::int64_t);
    const auto positions = values_in<std::int64_t>(message.first(n_head_bytes));
    const std::span<const std::byte> q = message.subspan(n_head_bytes);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::size_t row_bytes = q.size() / static_cast<std::size_t>(n);
      rows.push_back({positions[i + 1], q.subspan(i * row_bytes, row_bytes)});
    }
    n_values += q.size() / sizeof(float);
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.position < b.position; });
  ObservedQueries::Rows all;
  all.q.reserve(n_values);
  for (const Row& row : rows) {
    const std::vector<float> q = values_in<float>(row.q);
    all.positions.push_back(row.position);
    all.q.insert(all.q.end(), q.begin(), q.end());
  }
  return all;
}

void compact_layer(const CompactionArgs& args, LayerId layer, SequenceCache& cache) {
  LayerCompaction(args, layer, cache).run();
}

void compact(const CompactionArgs& args, SequenceCache& cache) {
  bool any = false;
  for (const LayerId layer : args.layout.layer_ids())
    any = LayerCompaction(args, layer, cache).run() || any;
  if (!any) return;
  cache.observed().clear();  // of a document they are also the prompt's first ones
  if (args.when == KeepWhen::kAfterDocument) cache.set_cut();
}

}  // namespace longhaul
