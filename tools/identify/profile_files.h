// A profile in the form in which DuoAttention's are published (full_attention_heads.tsv and
// config.json), with what made it, so that the profile of another model is refused
// (model/head_profile.h reads it).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tools/identify/token_rows.h"

namespace longhaul {

struct FoundHeads {
  std::int64_t n_layers = 0;
  std::int64_t n_kv_heads = 0;
  std::vector<double> gates;  // [n_layers, n_kv_heads]; clipped to [0, 1] when they are written
  StudentWindow window;
  std::string method;                         // "duo_attention", "induction", ...
  std::optional<std::string> weights_sha256;  // of the model (coordinator/fingerprint.h)
  JsonObject details = {};                    // what else made them; follows in config.json
};

// As numpy's savetxt writes it. Pure.
std::string gates_tsv(const FoundHeads& heads);
std::string profile_config(const FoundHeads& heads);

// Throws kCorruptData for a gate that is NaN or infinite: it would choose no heads.
void require_finite_gates(const FoundHeads& heads);

// Creates the folder. config.json last: a profile without it is refused. Gates that are not finite
// throw kCorruptData, and what is there stays.
void write_profile(const std::filesystem::path& folder, const FoundHeads& heads);

// A table for people: heads by gate, the first `most` of them, and the widest gap between
// neighbours.
std::string ranking_text(const FoundHeads& heads, std::size_t most);
// The places of all heads, highest gate first, then lower layer, then lower head.
std::vector<std::size_t> ranking(const std::vector<double>& gates);
// Layer over KV head, as SVG, in colours that people without colour vision can tell apart.
std::string gates_picture(const FoundHeads& heads, const std::string& title);

}  // namespace longhaul
