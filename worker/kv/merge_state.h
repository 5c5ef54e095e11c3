// What the tokens of a sequence leave behind for those that may merge with them (DMC;
// kernels/merge_tokens.h): the newest tokens as they were projected, and how many slots each KV
// head has. Of one layer. Plain values; forks share them until they go on.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/merge_tokens.h"
#include "kernels/tensor.h"

namespace longhaul {

// Consecutive tokens before RoPE, of all KV heads.
struct RawTokens {
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::vector<float> values = {};  // [n, n_kv_heads, k, v and the weight: 2 head_dim + 1]

  std::int64_t head_size() const { return 2 * head_dim + 1; }
  std::int64_t row_size() const { return n_kv_heads * head_size(); }
  std::int64_t n() const {
    return values.empty() ? 0 : static_cast<std::int64_t>(values.size()) / row_size();
  }
  // Views of the first n_first, valid until it changes.
  RawRows rows(std::int64_t n_first) const;
  RawRows rows() const { return rows(n()); }
  // The last n_last of `more`, which follow these.
  void append(const RawRows& more, std::int64_t n_last);
  // Forgets all but the last n_last; or, so that a token at a time moves little, twice as many.
  void keep_last(std::int64_t n_last);
  void keep_about(std::int64_t n_last) {
    if (n() > 2 * n_last) keep_last(n_last);
  }
};

struct MergeState {
  RawTokens last = {};                     // window - 1 tokens or more, or all that there are
  std::vector<std::int64_t> n_slots = {};  // [n_kv_heads]; empty: none
};

}  // namespace longhaul
