#include "tools/eval/perplexity_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/heads/long_gen.h"

namespace longhaul {
namespace {

constexpr std::array kAllPolicies = {PerplexityPolicy::kDense,
                                     PerplexityPolicy::kWindow,
                                     PerplexityPolicy::kRecompute,
                                     PerplexityPolicy::kStreaming,
                                     PerplexityPolicy::kStreamingAbsolute,
                                     PerplexityPolicy::kLongGen,
                                     PerplexityPolicy::kDuo};

PerplexityPolicy policy_named(std::string_view name) {
  std::string names;
  for (const PerplexityPolicy policy : kAllPolicies) {
    if (name == name_of(policy)) return policy;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(policy));
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--policy: '{}' is none of {}", name, names));
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

std::vector<PerplexityPolicy> parse_policies(std::string_view text) {
  std::vector<PerplexityPolicy> policies;
  while (true) {
    const std::size_t end = text.find(',');
    const PerplexityPolicy policy = policy_named(text.substr(0, end));
    require(std::find(policies.begin(), policies.end(), policy) == policies.end(),
            fmt::format("--policy: {} is there twice", name_of(policy)));
    policies.push_back(policy);
    if (end == std::string_view::npos) return policies;
    text.remove_prefix(end + 1);
  }
}

HeadRoles roles_of(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo) {
  require(window.window >= 1 && 0 <= window.sink && window.sink < window.window,
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
