// Which KV heads are retrieval heads and which are streaming heads. Reads the published
// DuoAttention form as it is (full_attention_heads.tsv: rows = layers, columns = KV heads, gate
// values; config.json: sink_size, recent_size) and chooses roles from it by a deterministic rule.
// Heads are always named in their published order.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace longhaul {

struct ModelSpec;

struct HeadProfile {
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::vector<double> gates = {};  // [n_layers, n_kv_heads], clipped to [0, 1]
  std::int64_t sink = 0;           // tokens
  std::int64_t recent = 0;         // tokens, the query's own included
  // Of the weights that it was made for (coordinator/fingerprint.h); published ones do not say it.
  std::optional<std::string> weights_sha256 = {};
  double gate(LayerId layer, KvHeadId kv_head) const {
    return gates[static_cast<std::size_t>(layer.value * n_kv_heads + kv_head.value)];
  }
};

// Parses the two files; errors name source, line and column.
HeadProfile parse_head_profile(std::string_view tsv, std::string_view tsv_source,
                               std::string_view config_json, std::string_view config_source);
// `folder` holds full_attention_heads.tsv and config.json; or is the path of the TSV, with
// config.json beside it.
HeadProfile read_head_profile(const std::filesystem::path& folder);

enum class HeadRole : std::uint8_t { kRetrieval = 0, kStreaming = 1 };

// Where streaming heads see their sinks once tokens between them and the recent ones are gone.
enum class SinkPositions : std::uint8_t {
  kAbsolute = 0,  // where they stand in the text (DuoAttention)
  kInCache = 1,   // right before the recent tokens: positions count kept tokens (StreamingLLM)
};

// The role of every KV head, and the window that streaming heads keep.
struct HeadRoles {
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::vector<HeadRole> roles = {};  // [n_layers, n_kv_heads]
  std::int64_t sink = 0;
  std::int64_t recent = 0;
  SinkPositions sink_positions = SinkPositions::kAbsolute;

  static HeadRoles all_retrieval(std::int64_t n_layers, std::int64_t n_kv_heads);
  HeadRole role(LayerId layer, KvHeadId kv_head) const {
    return roles[static_cast<std::size_t>(layer.value * n_kv_heads + kv_head.value)];
  }
  std::int64_t n_retrieval() const;
  std::int64_t n_retrieval(LayerId layer) const;
  bool operator==(const HeadRoles&) const = default;
};

// Without a ratio: heads with gate >= 0.5 keep everything. With a ratio r, the published count:
// with n heads and h = (n - 1)(1 - r), n - h heads for an integral h, else n - floor(h) - 1; r <= 0
// keeps none, r >= 1 all. Which heads: higher gate first, then lower layer, then lower head (the
// published code breaks ties at random: DuoAttention, utils.py, sparsify_attention_heads).
HeadRoles choose_roles(const HeadProfile& profile, std::optional<double> retrieval_ratio);

// Throws kInvalidArgument unless the profile has the model's layers and KV heads.
void check_profile_fits(const HeadProfile& profile, const ModelSpec& spec);

// One line for people: how many heads keep everything, the window of the others, the count of each
// layer.
std::string describe(const HeadRoles& roles);

}  // namespace longhaul
