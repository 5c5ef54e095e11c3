// The keys and values of one layer for some of a text's tokens, whole on every rank: each computes
// those of its own blocks, and the blocks are gathered. In the memory of a stream's device, which
// the communicator takes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cluster/comm/communicator.h"
#include "kernels/device_tensor.h"
#include "kernels/kv_block.h"
#include "kernels/tensor.h"
#include "tools/identify/token_rows.h"

namespace longhaul {

// Collective over comm. Every rank's rows of a set, in the order of their positions: `own` [this
// rank's tokens of the set, ...] becomes [all tokens of the set, ...].
DeviceTensor<float, 3> gather_rows(StreamRef stream, Communicator& comm, const TokenDeal& deal,
                                   const TokenSet& set, DeviceTensor<float, 3> own);
// The other way: this rank's rows of those of all.
DeviceTensor<float, 3> own_rows(StreamRef stream, const Communicator& comm, const TokenDeal& deal,
                                const TokenSet& set, const TensorView<const float, 3>& all);

// Used by one thread. Memory grows to the largest layer's and stays.
class RingKeys {
 public:
  RingKeys(StreamRef stream, Communicator& comm, const KvBlockShape& shape,
           std::int64_t n_kv_heads);

  // Forgets what was there and makes room.
  void begin(const TokenDeal& deal, const TokenSet& set);
  // The next rows of this rank's tokens, in order; all but the last call give whole blocks.
  void append(const TensorView<const float, 3>& k,   // [n_rows, n_kv_heads, head_dim]
              const TensorView<const float, 3>& v);  // the same
  // Collective over comm: every rank has appended all of its tokens.
  void gather();
  // All ranks' blocks of one head, after gather().
  std::span<const KvBlockRef> blocks(std::int64_t kv_head) const {
    return refs_[static_cast<std::size_t>(kv_head)];
  }
  std::size_t bytes() const { return static_cast<std::size_t>(memory_.size()) * sizeof(float); }

 private:
  std::byte* block(std::int64_t index, std::int64_t kv_head);

  StreamRef stream_;
  Communicator& comm_;
  KvBlockShape shape_;
  std::int64_t n_kv_heads_;
  DeviceTensor<float, 1> memory_;                   // [all blocks by rank, n_kv_heads] blocks
  std::vector<std::vector<std::int64_t>> numbers_;  // [rank] of its blocks in the text
  std::vector<std::vector<KvBlockRef>> refs_;       // [n_kv_heads]
  std::int64_t n_tokens_ = 0;
  std::int64_t first_own_ = 0;   // block of memory_
  std::int64_t n_appended_ = 0;  // rows
};

}  // namespace longhaul
