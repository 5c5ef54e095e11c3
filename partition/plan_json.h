// Plans as JSON: written for other programs and for `longhaul run`, read back strictly. Layout:
//
//   {"format": "longhaul-plan", "version": 2, "hash": "<16 hex digits>", "model": "...",
//    "kv": {"k_type": "bf16", "v_type": "bf16", "block_size": 64, "head_dim": 128},
//    "chunk_len": 8192,
//    "heads": {"policies": [{"see": "all"}, ...], "layers": [[0, 1, ...], ...]},   (model/heads)
//    "replicas": [{"stages": [{
//      "layers": [0, 32], "ring": [0, 1], "token_share": [524288, 524288],
//      "home": [[[[0, 1]], [[0, 3], [1, 5]], ...], ...],     [layer][kv_head] -> [rank, weight]
//      pairs "ffn_slice": [[0, 7168], [7168, 14336]], "vocab_slice": [...]}]}]}
//
// The hash is FNV-1a (64 bits) of the text that to_text gives for the same object without "hash":
// equal plans have equal hashes on every machine. It tells plans apart; it is no signature.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "partition/plan.h"

namespace longhaul {

std::string plan_hash(const Plan& plan);

Json plan_to_json(const Plan& plan);

// Throws kCorruptData naming source, path and reason: missing and unknown keys, wrong types,
// numbers out of range, a hash that does not match. What is read has the right form; whether it is
// right for a model and a cluster is for check_plan.
Plan plan_from_json(const Json& json, std::string_view source);

}  // namespace longhaul
