// Which heads keep every token in an evaluation: a profile's choice, all, none, and single heads
// changed, so that every head can be tried one by one. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/heads/heads_json.h"

namespace longhaul {

struct HeadId {
  std::int64_t layer = 0;
  std::int64_t kv_head = 0;
  bool operator==(const HeadId&) const = default;
};

struct HeadChoice {
  std::optional<HeadProfile> profile = {};
  std::optional<double> retrieval_ratio = {};
  std::optional<std::int64_t> sink = {};    // of streaming heads, instead of the profile's
  std::optional<std::int64_t> recent = {};  // the same
  bool all_dense = false;
  bool all_streaming = false;
  std::vector<std::string> streaming_heads = {};        // "L:H", made streaming after all else
  std::optional<std::string> only_retrieval_head = {};  // "L:H"
};

// Throws kInvalidArgument for choices that contradict each other, heads that the model does not
// have, and streaming heads without a window.
HeadRoles choose_head_roles(const HeadChoice& choice, std::int64_t n_layers,
                            std::int64_t n_kv_heads);

// "2:1" is layer 2, KV head 1, both counted from 0.
HeadId parse_head(std::string_view text, std::int64_t n_layers, std::int64_t n_kv_heads);

HeadRoles with_head_streaming(HeadRoles roles, HeadId head);
HeadRoles with_only_retrieval_head(HeadRoles roles, HeadId head);

}  // namespace longhaul
