// What the tokens of a sequence leave behind for those that may merge with them (DMC;
// kernels/merge_tokens.h): the newest tokens as they were projected, and how many slots each KV
// head has. Of one layer. Forks share them until they go on.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/device/device.h"
#include "kernels/copy_rows.h"
#include "kernels/merge_tokens.h"
#include "worker/kv/block_pool.h"

namespace longhaul {

// How tokens before RoPE lie in memory of the device: [n, n_kv_heads, k and v and the weight].
struct RawLayout {
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;

  std::int64_t head_size() const { return 2 * head_dim + 1; }
  std::int64_t row_size() const { return n_kv_heads * head_size(); }
  // Views of n tokens.
  RawRows rows(const float* first, std::int64_t n) const;
};
// The last n of these tokens, or all that there are.
RawRows last_rows(const RawRows& rows, std::int64_t n);

// Copies that are made together, and the memory that they read.
class RawCopies {
 public:
  // Of these tokens, to memory of such a layout.
  void add(const RawLayout& layout, const RawRows& from, float* to);
  void hold(std::shared_ptr<PoolFloats> memory) { sources_.push_back(std::move(memory)); }
  void run(StreamRef stream);

 private:
  std::vector<CopyRowsItem> items_;
  std::vector<std::shared_ptr<PoolFloats>> sources_;
};

// A sequence's newest tokens. Used by one thread; the pool must outlive it.
class RawTokens {
 public:
  explicit RawTokens(BlockPool& pool) : pool_(&pool) {}

  // Views of them: the n_last of append(), or more, or all that were appended.
  RawRows rows() const { return rows(begin_, end_); }
  // The last n_last of `more`, which follow these: once the copies are made, all are there. Returns
  // views of those before them.
  RawRows append(const RawRows& more, std::int64_t n_last, RawCopies& copies);
  // Forgets all.
  void clear() { begin_ = end_; }
  // For files: the last n_last of them, or all, on the host, [n, n_kv_heads, k, v and the weight];
  // and the same of another sequence, in the place of these.
  const RawLayout& layout() const { return layout_; }
  std::vector<float> on_host(std::int64_t n_last) const;
  void set(const RawLayout& layout, std::span<const float> tokens);

 private:
  RawRows rows(std::int64_t begin, std::int64_t end) const;

  BlockPool* pool_;
  RawLayout layout_;
  std::shared_ptr<PoolFloats> memory_;  // of capacity_ tokens; who shares it only reads it
  std::int64_t capacity_ = 0;
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
};

struct MergeState {
  RawTokens last;
  std::vector<std::int64_t> n_slots = {};  // [n_kv_heads]; empty: none
};

}  // namespace longhaul
