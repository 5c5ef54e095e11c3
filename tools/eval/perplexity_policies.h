// The policies that `longhaul eval perplexity` compares, by name. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/heads/cache_method.h"
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

std::string_view name_of(PerplexityPolicy policy);

// One of these, or a cache method as --policy of longhaul run has it.
using ComparedPolicy = std::variant<PerplexityPolicy, CacheMethod>;
// What `text` says: "streaming:sink=4,window=512", a method, or names with their presets,
// "dense,streaming,infinite", of which those above come first. At least one; twice the same is left
// to require_different. Throws kInvalidArgument naming what is wrong.
std::vector<ComparedPolicy> parse_policies(std::string_view text);
// As the user may say it.
std::string name_of(const ComparedPolicy& policy);

// Throws kInvalidArgument naming a policy that is there twice.
void require_different(const std::vector<ComparedPolicy>& policies);

// Throws kInvalidArgument naming the method unless it says what a query sees while the text is
// read: methods that choose when a text is whole, or at each token of an answer, have nothing to
// choose here.
void require_scores_texts(const CacheMethod& method);

struct PolicyWindow {
  std::int64_t window = 512;  // tokens that a query sees, its own included
  std::int64_t sink = 4;      // of these, the first of the text; less than window
};

// Whether a policy depends on PolicyWindow::window, and on its sink.
bool has_window(PerplexityPolicy policy);
bool has_sink(PerplexityPolicy policy);

// What the heads see under a policy that runs with caches. kRecompute has no such roles: throws
// kInvalidArgument. kDuo is `duo` as it is.
HeadRoles roles_of(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo);

// "the last 512 tokens, their keys as they were computed"
std::string describe(PerplexityPolicy policy, const PolicyWindow& window, const HeadRoles& duo);

}  // namespace longhaul
