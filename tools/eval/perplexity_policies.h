// The policies that `longhaul eval perplexity` compares, by name. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/head_choice.h"

namespace longhaul {

enum class PerplexityPolicy {
  kDense,
  kWindow,
  kRecompute,
  kStreaming,
  kStreamingAbsolute,
  kLongGen,
  kDuo
};

// "dense,streaming": at least one, none twice. Throws kInvalidArgument naming what is wrong.
std::vector<PerplexityPolicy> parse_policies(std::string_view text);
std::string_view name_of(PerplexityPolicy policy);

struct PolicyWindow {
  std::int64_t window = 512;  // tokens that a query sees, its own included
  std::int64_t sink = 4;      // of these, the first of the text; less than window
};

// What the heads see under a policy that runs with caches. kRecompute has no such roles: throws
// kInvalidArgument. kDuo is `duo` as it is.
HeadRoles roles_of(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo);

// "the last 512 tokens, their keys as they were computed"
std::string describe(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo);

}  // namespace longhaul
