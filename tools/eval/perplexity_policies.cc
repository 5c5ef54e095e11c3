#include "tools/eval/perplexity_policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "model/heads/long_gen.h"
#include "tools/flags/cache_method_words.h"

namespace longhaul {
namespace {

constexpr std::array kAllPolicies = {PerplexityPolicy::kDense,
                                     PerplexityPolicy::kWindow,
                                     PerplexityPolicy::kRecompute,
                                     PerplexityPolicy::kStreaming,
                                     PerplexityPolicy::kStreamingAbsolute,
                                     PerplexityPolicy::kLongGen,
                                     PerplexityPolicy::kDuo};

std::optional<PerplexityPolicy> policy_named(std::string_view name) {
  for (const PerplexityPolicy policy : kAllPolicies) {
    if (name == name_of(policy)) return policy;
  }
  return std::nullopt;
}

ComparedPolicy policy_or_method(std::string_view name) {
  if (const auto policy = policy_named(name)) return *policy;
  try {
    return parse_cache_method(name);
  } catch (const Error& error) {
    std::vector<std::string_view> names;
    for (const PerplexityPolicy policy : kAllPolicies) names.push_back(name_of(policy));
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--policy: '{}' is none of {}, and {}", name, fmt::join(names, ", "),
                            error.what()));
  }
}

}  // namespace

std::string_view name_of(PerplexityPolicy policy) {
  switch (policy) {
    case PerplexityPolicy::kDense:
      return "dense";
    case PerplexityPolicy::kWindow:
      return "window";
    case PerplexityPolicy::kRecompute:
      return "recompute";
    case PerplexityPolicy::kStreaming:
      return "streaming";
    case PerplexityPolicy::kStreamingAbsolute:
      return "streaming-absolute";
    case PerplexityPolicy::kLongGen:
      return "longgen";
    case PerplexityPolicy::kDuo:
      return "duo";
  }
  throw Error(ErrorCode::kInternal, "unknown PerplexityPolicy");
}

std::vector<ComparedPolicy> parse_policies(std::string_view text) {
  if (text.find(':') != std::string_view::npos) return {parse_cache_method(text)};
  std::vector<ComparedPolicy> policies;
  while (true) {
    const std::size_t end = text.find(',');
    policies.push_back(policy_or_method(text.substr(0, end)));
    if (end == std::string_view::npos) return policies;
    text.remove_prefix(end + 1);
  }
}

std::string name_of(const ComparedPolicy& policy) {
  if (const auto* named = std::get_if<PerplexityPolicy>(&policy))
    return std::string(name_of(*named));
  return to_text(std::get<CacheMethod>(policy));
}

void require_different(const std::vector<ComparedPolicy>& policies) {
  std::set<std::string> names;
  for (const ComparedPolicy& policy : policies) {
    require(names.insert(name_of(policy)).second,
            fmt::format("--policy: {} is there twice", name_of(policy)));
  }
}

void require_scores_texts(const CacheMethod& method) {
  // Of a model that is large enough for methods that treat its first layers otherwise.
  constexpr std::int64_t kLayers = 64;
  for (const LayerId layer : IdRange<LayerId>(kLayers)) {
    const HeadPolicy policy = policy_of(method, layer, kLayers);
    if (std::holds_alternative<KeepSeen>(policy.keep) &&
        std::holds_alternative<ReadEveryPage>(policy.choose)) {
      continue;
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--policy {}: it chooses when a text is whole or while it is answered, "
                            "and here all tokens of the text are scored before; give a method "
                            "that says what a query sees (longhaul eval methods asks questions)",
                            to_text(method)));
  }
}

bool has_window(PerplexityPolicy policy) {
  return has_sink(policy) || policy == PerplexityPolicy::kWindow ||
         policy == PerplexityPolicy::kRecompute;
}

bool has_sink(PerplexityPolicy policy) {
  return policy == PerplexityPolicy::kStreaming || policy == PerplexityPolicy::kStreamingAbsolute ||
         policy == PerplexityPolicy::kLongGen;
}

HeadRoles roles_of(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo) {
  require(window.window >= 1, fmt::format("--window {}: at least 1", window.window));
  require(!has_sink(policy) || (0 <= window.sink && window.sink < window.window),
          fmt::format("--sink {} must be less than --window {}: a query sees its own token too",
                      window.sink, window.window));
  HeadRoles roles = HeadRoles::all_retrieval(duo.n_layers, duo.n_kv_heads);
  const auto all_streaming = [&](std::int64_t sink, SinkPositions positions) {
    std::fill(roles.roles.begin(), roles.roles.end(), HeadRole::kStreaming);
    roles.sink = sink;
    roles.recent = window.window - sink;
    roles.sink_positions = positions;
    return roles;
  };
  switch (policy) {
    case PerplexityPolicy::kDense:
      return roles;
    case PerplexityPolicy::kWindow:
      return all_streaming(0, SinkPositions::kAbsolute);
    case PerplexityPolicy::kStreaming:
      return all_streaming(window.sink, SinkPositions::kInCache);
    case PerplexityPolicy::kStreamingAbsolute:
      return all_streaming(window.sink, SinkPositions::kAbsolute);
    case PerplexityPolicy::kLongGen:
      return long_gen_roles(duo.n_layers, duo.n_kv_heads, window.sink, window.window - window.sink);
    case PerplexityPolicy::kDuo:
      return duo;
    case PerplexityPolicy::kRecompute:
      break;
  }
  throw Error(ErrorCode::kInvalidArgument, "a window with recompute keeps no cache");
}

std::string describe(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo) {
  const std::int64_t recent = window.window - window.sink;
  switch (policy) {
    case PerplexityPolicy::kDense:
      return "every token before";
    case PerplexityPolicy::kWindow:
      return fmt::format("the last {} tokens, cached", window.window);
    case PerplexityPolicy::kRecompute:
      return fmt::format("the last {} tokens, all computed anew for each token", window.window);
    case PerplexityPolicy::kStreaming:
      return fmt::format("the first {} and the last {} tokens, cached, at positions in the cache",
                         window.sink, recent);
    case PerplexityPolicy::kStreamingAbsolute:
      return fmt::format("the first {} and the last {} tokens, cached, at their own positions",
                         window.sink, recent);
    case PerplexityPolicy::kLongGen:
      return fmt::format("layers {} to {} every token, the others the first {} and the last {}",
                         long_gen_layers(duo.n_layers).begin, long_gen_layers(duo.n_layers).end - 1,
                         window.sink, recent);
    case PerplexityPolicy::kDuo:
      return describe(duo);
  }
  return "";
}

}  // namespace longhaul
