#include "tests/property/recovered_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace longhaul::test {
namespace {

// One KV head while a text is read. Written after the definition, not after model/heads/recipe.cc.
class RecoveringHead {
 public:
  RecoveringHead(const KeepBudget* keep, std::int64_t n_whole, std::vector<TokenClass> classes)
      : keep_(keep), n_whole_(n_whole), classes_(std::move(classes)) {}

  const std::set<std::int64_t>* forgotten() const {
    return keep_ == nullptr ? nullptr : &forgotten_;
  }

  void see(const ReferenceModel::Attention& a) {
    if (keep_ == nullptr) return;
    const auto window = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(keep_->recover->local * static_cast<double>(a.query + 1)));
    for (std::size_t i = 0; i < a.keys.size(); ++i) {
      masses_[a.keys[i]] += a.weights[i];
      if (a.query - a.keys[i] < window) local_[a.keys[i]] += a.weights[i];
      if (a.query < n_whole_) all_ += a.weights[i];
    }
  }

  // After the queries at this position.
  void choose(std::int64_t query, double& margin) {
    if (keep_ == nullptr || query + 1 < n_whole_) return;
    if (query + 1 > n_whole_ && keep_->when != KeepWhen::kAfterToken) return;
    if (!kind_) find_kind(margin);
    forget_others(kept_by(*kind_, query + 1, margin));
  }

  std::vector<std::int64_t> kept(std::int64_t n_tokens) const {
    std::vector<std::int64_t> kept;
    for (std::int64_t i = 0; i < n_tokens; ++i) {
      if (!forgotten_.contains(i)) kept.push_back(i);
    }
    return kept;
  }

 private:
  static constexpr int kAll = 4;

  void find_kind(double& margin) {
    n_frequent_ =
        static_cast<std::int64_t>(keep_->recover->frequent * static_cast<double>(n_whole_));
    n_local_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(keep_->recover->local * static_cast<double>(n_whole_)));
    for (kind_ = 0; *kind_ < kAll; ++*kind_) {
      double ignored = 0;
      const std::set<std::int64_t> kept = kept_by(*kind_, n_whole_, ignored);
      double recovered = 0;
      for (std::int64_t key = 0; key < n_whole_; ++key) {
        const bool only_local = *kind_ == 3 && (!kept.contains(key) || is_local_only(key));
        if (only_local) {
          recovered += local_[key];
        } else if (kept.contains(key)) {
          recovered += masses_[key];
        }
      }
      recovered /= all_;
      margin = std::min(margin, std::abs(recovered - keep_->recover->threshold));
      if (recovered >= keep_->recover->threshold) return;
    }
  }

  bool stays_by_class(int kind, std::int64_t key) const {
    const TokenClass of_key = classes_[static_cast<std::size_t>(key)];
    if (key < keep_->n_sink || of_key == TokenClass::kSpecial) return true;
    return kind >= 1 && of_key == TokenClass::kPunctuation;
  }
  // Of the whole text: among the last tokens, and for no other reason kept.
  bool is_local_only(std::int64_t key) const {
    return key >= n_whole_ - n_local_ && !stays_by_class(3, key);
  }

  std::set<std::int64_t> kept_by(int kind, std::int64_t n_tokens, double& margin) {
    std::set<std::int64_t> kept;
    std::vector<std::pair<double, std::int64_t>> others;
    for (std::int64_t key = 0; key < n_tokens; ++key) {
      if (forgotten_.contains(key)) continue;
      const bool is_local = kind == 3 && key >= n_tokens - n_local_;
      if (kind == kAll || stays_by_class(kind, key) || is_local) {
        kept.insert(key);
      } else {
        others.emplace_back(-masses_[key], key);
      }
    }
    if (kind != 2 && kind != 3) return kept;
    std::sort(others.begin(), others.end());
    const auto n = std::min(others.size(), static_cast<std::size_t>(n_frequent_));
    for (std::size_t i = 0; i < n; ++i) kept.insert(others[i].second);
    if (0 < n && n < others.size())
      margin = std::min(margin, (others[n].first - others[n - 1].first) / -others[n - 1].first);
    return kept;
  }

  void forget_others(const std::set<std::int64_t>& kept) {
    std::vector<std::int64_t> gone;
    for (const auto& [key, mass] : masses_) {
      if (!kept.contains(key)) gone.push_back(key);
    }
    for (const std::int64_t key : gone) {
      forgotten_.insert(key);
      masses_.erase(key);
    }
  }

  const KeepBudget* keep_;
  std::int64_t n_whole_;
  std::vector<TokenClass> classes_;
  std::set<std::int64_t> forgotten_;
  std::map<std::int64_t, double> masses_, local_;
  double all_ = 0;
  std::optional<int> kind_;
  std::int64_t n_frequent_ = 0;
  std::int64_t n_local_ = 0;
};

}  // namespace

KeepBudget random_recovery(Random& random, KeepWhen when) {
  return {.share = 1,
          .n_sink = random.integer(0, 2),
          .when = when,
          .observe = ObserveAll{},
          .recover = Recover{.threshold = random.uniform(0.05, 0.99),
                             .frequent = random.uniform(0, 0.6),
                             .local = random.uniform(0, 0.5)}};
}

TokenClasses random_classes(Random& random, std::int64_t vocab_size) {
  TokenClasses classes;
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    classes.push_back(random.chance(0.1)   ? TokenClass::kSpecial
                      : random.chance(0.2) ? TokenClass::kPunctuation
                                           : TokenClass::kOther);
  }
  return classes;
}

EvictionRun recover_by_definition(const ReferenceModel& model, std::span<const std::int32_t> text,
                                  std::int64_t n_whole, const HeadTable& heads,
                                  const TokenClasses& classes) {
  const ModelSpec& spec = model.spec();
  std::vector<TokenClass> of_text;
  for (const std::int32_t token : text) of_text.push_back(classes[static_cast<std::size_t>(token)]);
  std::vector<RecoveringHead> recovering;
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      recovering.emplace_back(std::get_if<KeepBudget>(&heads.at(layer, kv_head).keep), n_whole,
                              of_text);
    }
  }
  std::vector<KeyMask> masks;
  for (std::size_t i = 0; i < recovering.size(); ++i) {
    const auto n_kv_heads = static_cast<std::size_t>(spec.n_kv_heads);
    const KeyWindow window = heads.window(LayerId{static_cast<std::int64_t>(i / n_kv_heads)},
                                          KvHeadId{static_cast<std::int64_t>(i % n_kv_heads)});
    masks.push_back({.sink = window.sink, .recent = window.recent});
    masks.back().forgotten = recovering[i].forgotten();
  }
  EvictionRun run;
  run.margin = std::numeric_limits<double>::infinity();
  run.logits = model.logits(text, masks, [&](const ReferenceModel::Attention& a) {
    const auto kv_head = a.layer * spec.n_kv_heads + a.head / spec.gqa_group();
    RecoveringHead& head = recovering[static_cast<std::size_t>(kv_head)];
    head.see(a);
    if ((a.head + 1) % spec.gqa_group() == 0) head.choose(a.query, run.margin);
  });
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    auto& of_layer = run.kept.emplace_back();
    for (std::int64_t kv_head = 0; kv_head < spec.n_kv_heads; ++kv_head) {
      of_layer.push_back(
          recovering[static_cast<std::size_t>(layer * spec.n_kv_heads + kv_head)].kept(
              static_cast<std::int64_t>(text.size())));
    }
  }
  return run;
}

}  // namespace longhaul::test
