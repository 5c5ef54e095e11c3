// Which heads keep every token in an evaluation, beside what a profile says: all, none, and single
// heads changed, so that every head can be tried one by one. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/head_profile.h"

namespace longhaul {

struct HeadId {
  std::int64_t layer = 0;
  std::int64_t kv_head = 0;
  bool operator==(const HeadId&) const = default;
};

struct HeadChoice {
  bool all_dense = false;
  bool all_streaming = false;
  std::vector<std::string> streaming_heads = {};        // "L:H", made streaming after all else
  std::optional<std::string> only_retrieval_head = {};  // "L:H"
};

// The roles with the choice made. Throws kInvalidArgument for choices that contradict each other,
// heads that the model does not have, and streaming heads without a window.
HeadRoles with_choice(HeadRoles roles, const HeadChoice& choice);

// "2:1" is layer 2, KV head 1, both counted from 0.
HeadId parse_head(std::string_view text, std::int64_t n_layers, std::int64_t n_kv_heads);

HeadRoles with_head_streaming(HeadRoles roles, HeadId head);
HeadRoles with_only_retrieval_head(HeadRoles roles, HeadId head);

}  // namespace longhaul
