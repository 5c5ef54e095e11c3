// Attention in double precision, written to be read: the oracle of the attention kernels and of
// everything that splits, masks or merges attention. For tests only.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

namespace longhaul::reference {

// The key at position j is visible to the query at position p if and only if
//   j <= p  and  (j < sink  or  p - j < recent)
struct Mask {
  std::int64_t sink = 0;
  std::int64_t recent = std::numeric_limits<std::int64_t>::max();
  bool shows(std::int64_t query_position, std::int64_t key_position) const {
    return key_position <= query_position &&
           (key_position < sink || query_position - key_position < recent);
  }
};

struct AttentionCase {
  std::int64_t n_heads = 1;  // of the queries; head h reads KV head h / (n_heads / n_kv_heads)
  std::int64_t n_kv_heads = 1;
  std::int64_t head_dim = 1;
  std::vector<double> q;                  // [q_len, n_heads, head_dim]
  std::vector<std::int64_t> q_positions;  // [q_len]
  std::vector<double> k;                  // [kv_len, n_kv_heads, head_dim]
  std::vector<double> v;                  // [kv_len, n_kv_heads, head_dim]
  std::vector<std::int64_t> k_positions;  // [kv_len], any order
  std::vector<Mask> masks;  // one for all, or [q_len], or [q_len, n_heads]; empty: causal
  // [n_kv_heads, kv_len]: bit g says whether query head g of the group sees the key; empty: all do.
  std::vector<std::uint64_t> seen_by = {};
  std::vector<double> sink_logits;  // [n_heads], not scaled by sm_scale; or empty
  double sm_scale = 1.0;
};

struct AttentionResult {
  std::vector<double> out;  // [q_len, n_heads, head_dim]; zeros for a query that sees no key
  std::vector<double> lse;  // [q_len, n_heads], log of the sum of exp(score) over the visible keys,
                            // sink logits left out; -inf for a query that sees no key
};

AttentionResult attention(const AttentionCase& c);

}  // namespace longhaul::reference
