#include "tests/property/chosen_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/log_softmax.h"
#include "tests/support/tolerance.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

// Scores of one KV head's tokens: of each query head the sum over queries, pooled; then the group.
std::vector<double> scores_of(const KeepBudget& keep, std::vector<std::vector<double>> group) {
  const auto n = static_cast<std::int64_t>(group.front().size());
  const std::int64_t n_scored = std::max<std::int64_t>(0, n - keep.n_recent);
  std::vector<double> scores(static_cast<std::size_t>(n), std::numeric_limits<double>::infinity());
  for (std::int64_t i = keep.n_sink; i < n_scored; ++i) {
    std::vector<double> of_heads;
    for (const auto& row : group) {
      double sum = 0;
      double max = 0;
      const std::int64_t half = keep.pool.kind == PoolKind::kNone ? 0 : keep.pool.kernel / 2;
      for (std::int64_t j = i - half; j <= i + half; ++j) {
        if (j < 0 || j >= n_scored) continue;
        sum += row[static_cast<std::size_t>(j)];
        max = std::max(max, row[static_cast<std::size_t>(j)]);
      }
      of_heads.push_back(
          keep.pool.kind == PoolKind::kMax ? max : sum / static_cast<double>(2 * half + 1));
    }
    scores[static_cast<std::size_t>(i)] =
        keep.group == GroupScore::kMax ? *std::max_element(of_heads.begin(), of_heads.end())
                                       : std::accumulate(of_heads.begin(), of_heads.end(), 0.0) /
                                             static_cast<double>(of_heads.size());
  }
  return scores;
}

struct Entry {
  double score;
  std::int64_t token;
  std::size_t head;
};
bool wins(const Entry& a, const Entry& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.token != b.token ? a.token < b.token : a.head < b.head;
}

// The best n of these entries stay; how clearly is in margin.
void keep_best(std::vector<Entry> entries, std::int64_t n,
               std::vector<std::vector<std::int64_t>>& kept, double& margin) {
  std::sort(entries.begin(), entries.end(), wins);
  const auto count =
      std::min(entries.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, n)));
  for (std::size_t i = 0; i < count; ++i) kept[entries[i].head].push_back(entries[i].token);
  if (count == 0 || count == entries.size()) return;
  const double last = entries[count - 1].score;
  const double next = entries[count].score;
  // Equal scores are decided by positions, not by rounding.
  if (last != next && last < std::numeric_limits<double>::infinity())
    margin = std::min(margin, (last - next) / last);
}

std::vector<std::vector<std::int64_t>> choose(const KeepBudget& keep,
                                              std::vector<std::vector<double>> scores,
                                              double& margin) {
  const std::size_t n_heads = scores.size();
  const auto n = static_cast<std::int64_t>(scores.front().size());
  const std::int64_t wanted = keep.share > 0
                                  ? static_cast<std::int64_t>(keep.share * static_cast<double>(n))
                                  : keep.n_tokens;
  const std::int64_t budget = std::clamp(wanted, std::min(n, keep.n_sink + keep.n_recent), n);
  if (keep.select == SelectAmong::kLayerAlike) {
    std::vector<double> mean(static_cast<std::size_t>(n), 0);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (const auto& head : scores) mean[i] += head[i] / static_cast<double>(n_heads);
    }
    scores.assign(n_heads, mean);
  }
  std::vector<std::vector<std::int64_t>> kept(n_heads);
  std::vector<Entry> shared;
  for (std::size_t head = 0; head < n_heads; ++head) {
    std::vector<Entry> entries;
    for (std::int64_t i = 0; i < n; ++i)
      entries.push_back({scores[head][static_cast<std::size_t>(i)], i, head});
    if (keep.select != SelectAmong::kLayerShared) {
      keep_best(entries, budget, kept, margin);
      continue;
    }
    std::sort(entries.begin(), entries.end(), wins);
    const std::int64_t n_forced = keep.n_sink + keep.n_recent;
    const auto floor = std::max(
        static_cast<std::int64_t>(keep.head_floor * static_cast<double>(budget)), n_forced);
    for (std::int64_t i = 0; i < n; ++i) {
      if (i < floor) {
        kept[head].push_back(entries[static_cast<std::size_t>(i)].token);
      } else {
        shared.push_back(entries[static_cast<std::size_t>(i)]);
      }
    }
    if (floor < n && floor > n_forced) {
      const double last = entries[static_cast<std::size_t>(floor - 1)].score;
      const double next = entries[static_cast<std::size_t>(floor)].score;
      if (last != next) margin = std::min(margin, (last - next) / last);
    }
  }
  if (keep.select == SelectAmong::kLayerShared) {
    std::int64_t n_left = budget * static_cast<std::int64_t>(n_heads);
    for (const auto& head : kept) n_left -= static_cast<std::int64_t>(head.size());
    keep_best(std::move(shared), n_left, kept, margin);
  }
  for (auto& head : kept) std::sort(head.begin(), head.end());
  return kept;
}

// 1 - the cosine of each key [tokens, head_dim] and the mean of all keys' directions.
std::vector<double> distinctions_of(const std::vector<std::vector<double>>& keys) {
  const auto length = [](const std::vector<double>& x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  };
  std::vector<double> mean(keys.front().size(), 0);
  for (const auto& key : keys) {
    for (std::size_t d = 0; d < mean.size(); ++d)
      mean[d] += key[d] / length(key) / static_cast<double>(keys.size());
  }
  std::vector<double> distinctions;
  for (const auto& key : keys) {
    const double product = std::inner_product(key.begin(), key.end(), mean.begin(), 0.0);
    distinctions.push_back(1 - product / length(key) / length(mean));
  }
  return distinctions;
}

}  // namespace

KeepBudget random_key_budget(Random& random, KeepWhen when) {
  KeepBudget keep;
  keep.n_sink = random.integer(0, 4);
  keep.n_recent = random.integer(0, 9);
  keep.n_tokens = keep.n_sink + keep.n_recent + random.integer(1, 40);
  if (random.chance(0.3)) keep.share = random.uniform(0.1, 0.9);
  keep.when = when;
  keep.observe = ObserveKeys{};
  keep.select = static_cast<SelectAmong>(random.integer(0, 2));
  if (random.chance(0.5)) keep.head_floor = random.uniform(0, 1);
  return keep;
}

KeepBudget random_budget(Random& random, KeepWhen when) {
  KeepBudget keep;
  const std::int64_t window = random.integer(1, 12);
  keep.n_recent = window;
  keep.n_tokens = window + random.integer(0, 40);
  if (random.chance(0.3)) keep.share = random.uniform(0.1, 0.9);
  keep.when = when;
  keep.observe = ObserveLast{window};
  keep.pool = {static_cast<PoolKind>(random.integer(0, 2)), 2 * random.integer(0, 3) + 1};
  keep.group = random.chance(0.5) ? GroupScore::kMean : GroupScore::kMax;
  keep.select = static_cast<SelectAmong>(random.integer(0, 2));
  if (keep.select != SelectAmong::kLayerAlike && random.chance(0.4)) keep.group = GroupScore::kEach;
  if (random.chance(0.5)) keep.head_floor = random.uniform(0, 1);
  return keep;
}

HeadTable heads_with(const ModelSpec& spec, const KeepBudget& budget) {
  HeadTable heads = dense_heads(spec);
  KeepBudget keep = budget;
  if (keep.group == GroupScore::kEach) keep.n_choosers = spec.gqa_group();
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      if (kind_of(heads.at(layer, kv_head)) == HeadKind::kRetrieval)
        heads.set(layer, kv_head, {.keep = keep});
    }
  }
  return heads;
}

KeptTokens kept_by_definition(const ReferenceModel& model, std::span<const std::int32_t> document,
                              const HeadTable& heads, double& margin) {
  const ModelSpec& spec = model.spec();
  const auto n = static_cast<std::int64_t>(document.size());
  std::vector<std::vector<double>> masses(static_cast<std::size_t>(spec.n_layers * spec.n_heads),
                                          std::vector<double>(document.size(), 0.0));
  std::vector<std::vector<std::vector<double>>> keys(masses.size());  // of groups' first heads
  const auto budget_of = [&](std::int64_t layer, std::int64_t kv_head) {
    return std::get_if<KeepBudget>(&heads.at(LayerId{layer}, KvHeadId{kv_head}).keep);
  };
  const auto roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  model.logits(document, key_masks(spec, roles), [&](const ReferenceModel::Attention& a) {
    const KeepBudget* keep = budget_of(a.layer, a.head / spec.gqa_group());
    if (keep == nullptr) return;
    if (std::holds_alternative<ObserveKeys>(keep->observe)) {
      if (a.head % spec.gqa_group() == 0)
        keys[static_cast<std::size_t>(a.layer * spec.n_heads + a.head)].emplace_back(
            a.own_key.begin(), a.own_key.end());
      return;
    }
    if (a.query < n - std::get<ObserveLast>(keep->observe).n_queries) return;
    auto& row = masses[static_cast<std::size_t>(a.layer * spec.n_heads + a.head)];
    for (std::size_t i = 0; i < a.keys.size(); ++i)
      row[static_cast<std::size_t>(a.keys[i])] += a.weights[i];
  });
  KeptTokens kept(static_cast<std::size_t>(spec.n_layers));
  margin = std::numeric_limits<double>::infinity();
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    auto& of_layer = kept[static_cast<std::size_t>(layer)];
    const KeepBudget* keep = budget_of(layer, 0);
    if (keep == nullptr) {  // the model's own window
      of_layer.resize(static_cast<std::size_t>(spec.n_kv_heads));
      continue;
    }
    std::vector<std::vector<double>> scores;
    for (std::int64_t kv_head = 0; kv_head < spec.n_kv_heads; ++kv_head) {
      const auto first = masses.begin() + layer * spec.n_heads + kv_head * spec.gqa_group();
      if (std::holds_alternative<ObserveKeys>(keep->observe)) {
        const auto& of_head = keys[static_cast<std::size_t>(first - masses.begin())];
        scores.push_back(scores_of(*keep, {distinctions_of(of_head)}));
        continue;
      }
      const std::int64_t n_together = spec.gqa_group() / keep->n_choosers;
      for (std::int64_t i = 0; i < spec.gqa_group(); i += n_together)
        scores.push_back(scores_of(*keep, {first + i, first + i + n_together}));
    }
    of_layer = choose(*keep, std::move(scores), margin);
  }
  return kept;
}

namespace {

// One layer's KV heads while a text is read.
class Eviction {
 public:
  Eviction(const ModelSpec& spec, const HeadTable& heads, std::int64_t layer, std::int64_t n_prompt)
      : spec_(spec),
        keep_(std::get_if<KeepBudget>(&heads.at(LayerId{layer}, KvHeadId{0}).keep)),
        n_prompt_(n_prompt),
        forgotten_(static_cast<std::size_t>(spec.n_kv_heads)),
        sums_(forgotten_.size()) {}

  const std::set<std::int64_t>* forgotten(std::size_t kv_head) const {
    return keep_ == nullptr ? nullptr : &forgotten_[kv_head];
  }

  void see(const ReferenceModel::Attention& a, double& margin) {
    if (keep_ == nullptr) return;
    const bool sums_up = std::holds_alternative<ObserveAll>(keep_->observe);
    if (!sums_up && a.head % spec_.gqa_group() == 0)
      sums_[static_cast<std::size_t>(a.head / spec_.gqa_group())].clear();
    auto& sums = sums_[static_cast<std::size_t>(a.head / spec_.gqa_group())];
    for (std::size_t i = 0; i < a.keys.size(); ++i)
      sums[a.keys[i]] += a.weights[i] / static_cast<double>(spec_.gqa_group());
    if (a.head + 1 == spec_.n_heads && a.query + 1 >= n_prompt_) choose(a.query, margin);
  }

  std::vector<std::int64_t> kept(std::size_t kv_head, std::int64_t n_tokens) const {
    std::vector<std::int64_t> kept;
    if (keep_ == nullptr) return kept;
    for (std::int64_t i = 0; i < n_tokens; ++i) {
      if (!forgotten_[kv_head].contains(i)) kept.push_back(i);
    }
    return kept;
  }

 private:
  void choose(std::int64_t query, double& margin) {
    std::vector<std::map<std::int64_t, double>> scores = sums_;
    if (keep_->select == SelectAmong::kLayerAlike) {
      std::map<std::int64_t, double> mean;
      for (const auto& head : sums_) {
        for (const auto& [key, sum] : head) mean[key] += sum;
      }
      scores.assign(sums_.size(), mean);
    }
    for (std::size_t head = 0; head < scores.size(); ++head) {
      std::vector<Entry> entries;
      for (std::int64_t key = 0; key <= query; ++key) {
        if (forgotten_[head].contains(key)) continue;
        const bool stays = query - key < keep_->n_recent;
        entries.push_back(
            {stays ? std::numeric_limits<double>::infinity() : scores[head][key], key, head});
      }
      std::vector<std::vector<std::int64_t>> kept(scores.size());
      keep_best(entries, keep_->n_tokens, kept, margin);
      const std::set<std::int64_t> here(kept[head].begin(), kept[head].end());
      for (const Entry& entry : entries) {
        if (here.contains(entry.token)) continue;
        forgotten_[head].insert(entry.token);
        sums_[head].erase(entry.token);
      }
    }
  }

  const ModelSpec& spec_;
  const KeepBudget* keep_;
  std::int64_t n_prompt_;
  std::vector<std::set<std::int64_t>> forgotten_;
  std::vector<std::map<std::int64_t, double>> sums_;  // of the keys that are there
};

}  // namespace

EvictionRun evict_by_definition(const ReferenceModel& model, std::span<const std::int32_t> text,
                                std::int64_t n_prompt, const HeadTable& heads) {
  const ModelSpec& spec = model.spec();
  std::vector<Eviction> layers;
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer)
    layers.emplace_back(spec, heads, layer, n_prompt);
  std::vector<KeyMask> masks;
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      const KeyWindow window = heads.window(layer, kv_head);
      masks.push_back({.sink = window.sink, .recent = window.recent});
      masks.back().forgotten = layers[static_cast<std::size_t>(layer.value)].forgotten(
          static_cast<std::size_t>(kv_head.value));
    }
  }
  EvictionRun run;
  run.margin = std::numeric_limits<double>::infinity();
  run.logits = model.logits(text, masks, [&](const ReferenceModel::Attention& a) {
    layers[static_cast<std::size_t>(a.layer)].see(a, run.margin);
  });
  for (const Eviction& layer : layers) {
    auto& of_layer = run.kept.emplace_back();
    for (std::size_t kv_head = 0; kv_head < static_cast<std::size_t>(spec.n_kv_heads); ++kv_head)
      of_layer.push_back(layer.kept(kv_head, static_cast<std::int64_t>(text.size())));
  }
  return run;
}

KeepBudget random_eviction(Random& random) {
  const std::int64_t n_tokens = random.integer(1, 50);
  if (random.chance(0.5)) {
    return {.n_tokens = n_tokens,
            .n_recent = random.integer(1, n_tokens),
            .when = KeepWhen::kAfterToken,
            .observe = ObserveAll{}};
  }
  return {.n_tokens = n_tokens,
          .when = KeepWhen::kAfterToken,
          .observe = ObserveLast{1},
          .select = SelectAmong::kLayerAlike};
}

std::vector<KeyMask> masks_after(const HeadTable& heads, std::int64_t n_document,
                                 const KeptTokens& kept) {
  std::vector<KeyMask> masks;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const KeyWindow window = heads.window(layer, kv_head);
      KeyMask mask{.sink = window.sink, .recent = window.recent};
      if (const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep)) {
        mask.n_cut = n_document;
        const auto first =
            kept[static_cast<std::size_t>(layer.value)].begin() + kv_head.value * keep->n_choosers;
        mask.kept = *first;
        if (keep->n_choosers > 1) mask.kept_apart.assign(first, first + keep->n_choosers);
      }
      masks.push_back(std::move(mask));
    }
  }
  return masks;
}

KeptTokens held_by(Worker& worker, SequenceId sequence, const ModelSpec& spec,
                   std::int64_t n_choosers) {
  KeptTokens held(static_cast<std::size_t>(spec.n_layers));
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      const std::vector<TokenPos> positions = worker.held_positions(sequence, layer, kv_head);
      const std::vector<SeenBy> seen_by = worker.held_seen_by(sequence, layer, kv_head);
      for (std::int64_t chooser = 0; chooser < n_choosers; ++chooser) {
        auto& tokens = held[static_cast<std::size_t>(layer.value)].emplace_back();
        for (std::size_t i = 0; i < positions.size(); ++i) {
          if ((seen_by[i] >> chooser & 1) != 0) tokens.push_back(positions[i].value);
        }
        std::sort(tokens.begin(), tokens.end());
      }
    }
  }
  return held;
}

std::int64_t n_choosers(const HeadTable& heads) {
  std::int64_t most = 1;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const auto* keep = std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep);
      if (keep != nullptr) most = std::max(most, keep->n_choosers);
    }
  }
  return most;
}

std::vector<StepCommand> read_document(SequenceId id, std::span<const std::int32_t> tokens,
                                       std::span<const std::int64_t> chunks, AfterPrefill after) {
  std::vector<StepCommand> commands(chunks.size() + 1);
  commands[0].emplace<OpenSequence>().sequence = id;
  std::size_t at = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto part = tokens.subspan(at, static_cast<std::size_t>(chunks[i]));
    at += part.size();
    PrefillChunk& chunk = commands[i + 1].emplace<PrefillChunk>();
    chunk.sequence = id;
    chunk.tokens.assign(part.begin(), part.end());
    chunk.after = at == tokens.size() ? after : AfterPrefill::kNothing;
  }
  return commands;
}

AnsweredText read_and_answer(Worker& worker, Random& random, const ModelSpec& spec) {
  const SequenceId document{1}, answered{2}, beside{3};
  AnsweredText text;
  text.n_document = random.integer(1, 90);
  text.tokens = random_tokens(random, text.n_document, spec.vocab_size);
  const auto chunks = random_chunks(random, text.n_document);
  for (const StepCommand& command :
       read_document(document, text.tokens, chunks, AfterPrefill::kDocumentEnd)) {
    done(worker.step(command));
  }
  const auto question = random_tokens(random, random.integer(1, 20), spec.vocab_size);
  StepDone answer;
  for (const SequenceId fork : {beside, answered}) {
    done(worker.step(ForkSequence{
        .parent = document, .child = fork, .sampling = {.n_logprobs = spec.vocab_size}}));
    answer = done(worker.step(
        PrefillChunk{.sequence = fork, .tokens = question, .after = AfterPrefill::kSample}));
  }
  text.tokens.insert(text.tokens.end(), question.begin(), question.end());
  text.n_prompt = std::ssize(text.tokens);
  for (std::int32_t step = 0; step < 12; ++step) {
    text.tokens.push_back(answer.picked.at(0).token);
    answer = done(worker.step(DecodeBatch{.rows = {{answered, text.tokens.back()}}}));
    done(worker.step(DecodeBatch{.rows = {{beside, step % 7}}}));
    auto& row = text.logprobs.emplace_back(static_cast<std::size_t>(spec.vocab_size));
    for (const TokenLogprob& t : answer.picked.at(0).top)
      row[static_cast<std::size_t>(t.token)] = t.logprob;
  }
  text.held = held_by(worker, answered, spec);
  return text;
}

void expect_answers(const AnsweredText& got, std::span<const double> logits) {
  for (std::size_t step = 0; step < got.logprobs.size(); ++step) {
    const std::vector<float>& row = got.logprobs[step];
    const std::size_t place = static_cast<std::size_t>(got.n_prompt) + step;
    EXPECT_TRUE(close(row, log_softmax(logits.subspan(place * row.size(), row.size())),
                      logits_tolerance(DType::kF32)));
  }
}

}  // namespace longhaul::test
