#include "model/heads/cache_method.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul {
namespace {

void check_ratio(const char* method, double ratio) {
  require(0 <= ratio && ratio < 1,
          fmt::format("{}: ratio={} must be at least 0 and less than 1: it is the share of the "
                      "tokens that go",
                      method, ratio));
}

KeepBudget keep_of(const char* method, const ScoredBudget& m, std::int64_t gqa_group) {
  check_ratio(method, m.ratio);
  require(m.window >= 1 && (m.ratio > 0 || m.window <= m.capacity),
          fmt::format("{}: window={} must be at least 1 and no more than capacity={}", method,
                      m.window, m.capacity));
  require(m.kernel >= 1 && m.kernel % 2 == 1,
          fmt::format("{}: kernel={} must be an odd number", method, m.kernel));
  require(m.after != KeepWhen::kAfterToken,
          fmt::format("{}: after=token: it chooses when a document or a prompt is whole", method));
  const bool each = m.group == GroupScore::kEach;
  require(!each || gqa_group <= kMostChoosers,
          fmt::format("{}: group=each: the model has {} query heads for a KV head, and {} can "
                      "choose by themselves",
                      method, gqa_group, kMostChoosers));
  return {.n_tokens = m.capacity,
          .share = m.ratio > 0 ? 1 - m.ratio : 0,
          .n_recent = m.window,
          .when = m.after,
          .observe = ObserveLast{m.window},
          .pool = {m.pool, m.kernel},
          .group = m.group,
          .n_choosers = each ? gqa_group : 1};
}

struct PolicyOf {
  LayerId layer;
  std::int64_t n_layers;
  std::int64_t gqa_group;

  HeadPolicy operator()(const DenseMethod&) const { return {}; }
  HeadPolicy operator()(const DmcMethod&) const { return {.write = Write::kMergeIntoOpenSlot}; }
  HeadPolicy operator()(const StreamingMethod& m) const {
    require(0 <= m.sink && m.sink < m.window,
            fmt::format("streaming: sink={} must be less than window={}: a query sees its own "
                        "token too",
                        m.sink, m.window));
    return {.see = SeeSinkRecent{m.sink, m.window - m.sink, m.positions}};
  }
  HeadPolicy operator()(const RazorMethod& m) const {
    require(
        0 <= m.sink && m.sink < m.window,
        fmt::format("razor: sink={} must be less than window={}: a query sees its own token too",
                    m.sink, m.window));
    return {.see = SeeSinkRecent{m.sink, m.window - m.sink}, .rest = Rest::kCompensationKey};
  }
  HeadPolicy operator()(const WindowMethod& m) const {
    require(m.window >= 1, fmt::format("window: window={} must be at least 1", m.window));
    return {.see = SeeSinkRecent{0, m.window}};
  }
  HeadPolicy operator()(const SlideMethod& m) const {
    require(m.sink >= 0 && m.slide >= 1 && m.slide < m.cap - m.sink,
            fmt::format("infinite: slide={} must be at least 1 and less than cap={} without "
                        "sink={}",
                        m.slide, m.cap, m.sink));
    return {.see = SeeSinkSlide{m.sink, m.cap, m.slide, m.positions}};
  }
  HeadPolicy operator()(const SnapKvMethod& m) const {
    return {.keep = keep_of("snapkv", m, gqa_group)};
  }
  HeadPolicy operator()(const PyramidKvMethod& m) const {
    KeepBudget keep = keep_of("pyramidkv", m, gqa_group);
    require(m.beta >= 1, fmt::format("pyramidkv: beta={} must be at least 1", m.beta));
    const double slope =
        n_layers < 2 ? 0 : static_cast<double>(layer.value) / static_cast<double>(n_layers - 1);
    const double least = 1 / static_cast<double>(m.beta);
    const double of_mean = (2 - least) * (1 - slope) + least * slope;
    if (keep.share > 0) {
      keep.share = std::min(1.0, keep.share * of_mean);
    } else {
      keep.n_tokens = m.window + static_cast<std::int64_t>(
                                     static_cast<double>(m.capacity - m.window) * of_mean);
    }
    return {.keep = keep};
  }
  HeadPolicy operator()(const AdaKvMethod& m) const {
    KeepBudget keep = keep_of("adakv", m, gqa_group);
    keep.select = SelectAmong::kLayerShared;
    keep.head_floor = m.floor;
    return {.keep = keep};
  }
  HeadPolicy operator()(const TovaMethod& m) const {
    check_ratio("tova", m.ratio);
    require(m.ratio == 0 || m.after != KeepWhen::kAfterToken,
            "tova: after=token keeps capacity=... tokens: ratio is of a whole text");
    return {.keep = KeepBudget{.n_tokens = m.capacity,
                               .share = m.ratio > 0 ? 1 - m.ratio : 0,
                               .n_recent = m.after == KeepWhen::kAfterToken ? 0 : 1,
                               .when = m.after,
                               .observe = ObserveLast{1},
                               .select = SelectAmong::kLayerAlike}};
  }
  HeadPolicy operator()(const KeyDiffMethod& m) const {
    check_ratio("keydiff", m.ratio);
    require(m.sink >= 0 && m.recent >= 0 && (m.ratio > 0 || m.sink + m.recent <= m.capacity),
            fmt::format("keydiff: sink={} and recent={} must not be negative, and together no more "
                        "than capacity={}",
                        m.sink, m.recent, m.capacity));
    require(m.capacity >= 1, fmt::format("keydiff: capacity={} must be at least 1", m.capacity));
    require(m.after != KeepWhen::kAfterToken,
            "keydiff: after=token: it chooses when a document or a prompt is whole");
    return {.keep = KeepBudget{.n_tokens = m.capacity,
                               .share = m.ratio > 0 ? 1 - m.ratio : 0,
                               .n_sink = m.sink,
                               .n_recent = m.recent,
                               .when = m.after,
                               .observe = ObserveKeys{}}};
  }
  HeadPolicy operator()(const FastGenMethod& m) const {
    const auto check_share = [](const char* name, double x) {
      require(0 <= x && x <= 1,
              fmt::format("fastgen: {}={} must be at least 0 and no more than 1", name, x));
    };
    check_share("threshold", m.threshold);
    check_share("frequent", m.frequent);
    check_share("local", m.local);
    require(m.sink >= 0, fmt::format("fastgen: sink={} must not be negative", m.sink));
    return {.keep = KeepBudget{.share = 1,
                               .n_sink = m.sink,
                               .when = m.after,
                               .observe = ObserveAll{},
                               .recover = Recover{m.threshold, m.frequent, m.local}}};
  }
  HeadPolicy operator()(const H2oMethod& m) const {
    require(m.recent >= 1 && m.recent <= m.capacity,
            fmt::format("h2o: recent={} must be at least 1 and no more than capacity={}", m.recent,
                        m.capacity));
    return {.keep = KeepBudget{.n_tokens = m.capacity,
                               .n_recent = m.recent,
                               .when = KeepWhen::kAfterToken,
                               .observe = ObserveAll{}}};
  }
  HeadPolicy operator()(const QuestMethod& m) const {
    require(m.page >= 1 && m.budget >= m.page,
            fmt::format("quest: page={} must be at least 1 and no more than budget={}", m.page,
                        m.budget));
    require(m.dense >= 0, fmt::format("quest: dense={} must not be negative", m.dense));
    if (layer.value < m.dense) return {};
    return {.choose = ReadTopPages{m.page, m.budget}};
  }
};

struct SetBudget {
  std::int64_t n_tokens;

  void operator()(DenseMethod&) const {}
  void operator()(FastGenMethod&) const {}
  void operator()(DmcMethod&) const {}
  void operator()(StreamingMethod& m) const { m.window = n_tokens; }
  void operator()(WindowMethod& m) const { m.window = n_tokens; }
  void operator()(RazorMethod& m) const { m.window = n_tokens; }
  void operator()(SlideMethod& m) const {
    m.cap = n_tokens;
    m.slide = std::min(m.slide, std::max<std::int64_t>(1, (n_tokens - m.sink) / 2));
  }
  void operator()(ScoredBudget& m) const { set(m); }
  void operator()(TovaMethod& m) const { set(m); }
  void operator()(KeyDiffMethod& m) const { set(m); }
  // Half of it recent tokens, as published.
  void operator()(H2oMethod& m) const {
    m.capacity = n_tokens;
    m.recent = std::max<std::int64_t>(1, n_tokens / 2);
  }
  void operator()(QuestMethod& m) const {
    m.budget = n_tokens;
    m.page = std::min(m.page, n_tokens);
  }

 private:
  template <typename Method>
  void set(Method& m) const {
    m.capacity = n_tokens;
    m.ratio = 0;
  }
};

}  // namespace

CacheMethod with_budget(CacheMethod method, std::int64_t n_tokens) {
  std::visit([&](auto& m) { SetBudget{n_tokens}(m); }, method);
  return method;
}

HeadPolicy policy_of(const CacheMethod& method, LayerId layer, std::int64_t n_layers,
                     std::int64_t gqa_group) {
  return std::visit(PolicyOf{layer, n_layers, gqa_group}, method);
}

void require_whole_pages(const HeadMethods& methods, std::int64_t block_size) {
  for (const std::optional<CacheMethod>& method : {methods.all, methods.full, methods.streaming}) {
    const auto* quest = method ? std::get_if<QuestMethod>(&*method) : nullptr;
    if (quest == nullptr || quest->page < 1) continue;  // which policy_of refuses
    require(block_size % quest->page == 0,
            fmt::format("quest: page={} does not divide --block-size {}, and a cache block holds "
                        "whole pages: change one of them",
                        quest->page, block_size));
  }
}

namespace {

// A model was trained to merge tokens or was not: the method goes with the one kind alone.
void require_made_for(const ModelSpec& spec, const HeadMethods& methods) {
  const auto merges = [](const std::optional<CacheMethod>& method) {
    return method && std::holds_alternative<DmcMethod>(*method);
  };
  const bool any_merges = merges(methods.all) || merges(methods.full) || merges(methods.streaming);
  if (any_merges && !spec.token_merging) {
    throw Error(ErrorCode::kInvalidArgument,
                "--policy dmc: the model was not trained to merge tokens: its config.json has no "
                "dmc_window_size, and the last elements of its keys mean something else");
  }
  if (spec.token_merging && !methods.empty() &&
      !(merges(methods.all) && !methods.full && !methods.streaming)) {
    throw Error(ErrorCode::kInvalidArgument,
                "this model merges tokens (DMC; dmc_window_size in its config.json): it runs with "
                "--policy dmc, or none, and with no other method");
  }
}

// --streaming-heads means those of a head profile, and there may be none.
void require_streaming_heads(const HeadTable& heads) {
  if (heads.count(HeadKind::kStreaming) > 0) return;
  const std::string what =
      "--streaming-heads says what those heads keep that a head profile lets see a window: ";
  require(heads.count(HeadKind::kRetrieval) > 0,
          what + "leave it out, for the model has a window of its own in every layer, which stays");
  throw Error(ErrorCode::kInvalidArgument,
              what +
                  "give --head-profile, of which some stream where the model has no window of "
                  "its own");
}

}  // namespace

HeadTable method_heads(const ModelSpec& spec, const HeadRoles& roles, const HeadMethods& methods) {
  require_made_for(spec, methods);
  HeadTable heads = duo_attention_heads(spec, roles);
  if (methods.empty() || spec.token_merging) return heads;
  require(!(methods.all && methods.full),
          "--policy says what all heads keep, --full-heads what those keep that a head profile "
          "lets see every token: give one of them");
  require(!(methods.all && methods.streaming),
          "--policy says what all heads keep, --streaming-heads what some of them do: give one of "
          "them");
  require(!methods.all || roles.n_retrieval() == roles.n_layers * roles.n_kv_heads,
          "--policy says what all heads keep: beside streaming heads of a head profile give "
          "--full-heads, for those that keep every token");
  const HeadTable before = heads;
  if (methods.streaming) require_streaming_heads(before);
  const auto set = [&](const std::optional<CacheMethod>& method, HeadKind kind) {
    if (!method) return;
    for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
      const HeadPolicy policy = policy_of(*method, layer, spec.n_layers, spec.gqa_group());
      for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
        if (kind_of(before.at(layer, kv_head)) == kind) heads.set(layer, kv_head, policy);
      }
    }
  };
  set(methods.all ? methods.all : methods.full, HeadKind::kRetrieval);
  set(methods.streaming, HeadKind::kStreaming);
  return heads;
}

}  // namespace longhaul
