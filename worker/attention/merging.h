// Merges a sequence's new tokens in one layer (DMC; kernels/merge_tokens.h) and says where they go:
// which slot of each KV head's cache holds what, and which slots a query sees. With other ranks and
// alone: everything here follows from all tokens' decisions, which every rank knows.
//
// Blocks of such a head hold slots, not positions: block b has the slots from b * block_size on,
// and what attention takes for positions are slots. A query sees those before its own token's slot,
// and its own token by itself (kernels/own_keys.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/device_tensor.h"
#include "model/model_spec.h"
#include "worker/attention/attention_work.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

// How much rows weigh where they merge, in memory of the device that is used again and grows. Used
// by one thread.
class MergeWeights {
 public:
  // By their queries [rows, heads of n_kv_heads, head_dim] before RoPE: [rows, n_kv_heads], valid
  // until the next call.
  TensorView<const float, 2> of(StreamRef stream, const TensorView<const float, 3>& q,
                                std::int64_t n_kv_heads, const TokenMerging& merging);

 private:
  DeviceTensor<float, 2> memory_;
};

// The slots of the new tokens of one sequence.
class NewSlots {
 public:
  // `merges` [tokens, n_kv_heads] says which of them merge; n_before [n_kv_heads] how many slots
  // there were, none when it is empty.
  NewSlots(Extent tokens, std::span<const std::uint8_t> merges,
           std::span<const std::int64_t> n_before, std::int64_t n_kv_heads);

  Extent tokens() const { return tokens_; }
  std::int64_t slot(KvHeadId kv_head, std::int64_t position) const {
    return slots_[index(kv_head, position)];
  }
  // Whether the slot holds what merging made of this token: the next one has another slot, or
  // there is none.
  bool stays(KvHeadId kv_head, std::int64_t position) const {
    return position + 1 == tokens_.end || slot(kv_head, position + 1) != slot(kv_head, position);
  }
  // Of the tokens that stay: the first of them may be there already, with older contents.
  Extent slots(KvHeadId kv_head) const {
    return {slot(kv_head, tokens_.begin), slot(kv_head, tokens_.end - 1) + 1};
  }
  // How many there are now, of each KV head.
  std::vector<std::int64_t> n_slots() const;

 private:
  std::size_t index(KvHeadId kv_head, std::int64_t position) const {
    return static_cast<std::size_t>(kv_head.value * tokens_.size() + position - tokens_.begin);
  }
  Extent tokens_;
  std::int64_t n_kv_heads_;
  std::vector<std::int64_t> slots_;  // [n_kv_heads, tokens]
};

// The next tokens of one sequence.
struct NextTokens {
  Extent rows;
  Extent tokens;  // their positions
  MergeState* state = nullptr;
};
// Goes on with the next tokens of some sequences, whose keys and values in `k` and `v` [rows,
// n_kv_heads, head_dim] are as they were projected and become what merging makes of them. Gives the
// slots of each; on a GPU it waits for its work to know them.
struct MergeNextArgs {
  const TokenMerging& merging;
  TensorView<float, 3> k;
  TensorView<float, 3> v;
  TensorView<const float, 2> weights;       // [rows, n_kv_heads]
  std::span<const std::int64_t> positions;  // [rows]
  std::span<const NextTokens> sequences;    // of all rows
};
std::vector<NewSlots> merge_next(StreamRef stream, const MergeNextArgs& args);

// Slots of one head that lie in one block, and what comes there.
struct SlotRows {
  LayerId layer;
  KvHeadId kv_head;
  SequenceCache* cache = nullptr;
  Extent slots;
  TensorView<const float, 2> k;  // [any rows, head_dim]
  TensorView<const float, 2> v;
  std::span<const std::int32_t> rows = {};  // [slots], of k and v; empty: all of them, in order
};
// Writes them, each head's in ascending order: what is there already from its first slot on is
// forgotten. Throws kOutOfMemory; the caches can then only be dropped.
void store_slots(StreamRef stream, const CacheLayout& layout, std::span<const SlotRows> items);

// The parts of slots by block.
std::vector<Extent> slots_by_block(Extent slots, std::int64_t block_size);

// Adds queries of merged tokens to a list of attention work. Used by one thread.
class SlotQueries {
 public:
  // Starts an empty list.
  void clear() { positions_.clear(); }
  // The queries of one KV head in these rows, against slots that lie in `blocks`: those before
  // each query's own, or with it. `slot_of` says a row's own slot. Blocks stay until the work is
  // done, this list until it is cleared.
  enum class Own : std::uint8_t { kApart, kInBlocks };
  void add(AttentionWork& work, const QueryRows& queries, KvHeadId kv_head, Extent rows,
           std::span<const KvBlockRef> blocks, Own own,
           const std::function<std::int64_t(std::int64_t)>& slot_of);

 private:
  std::vector<std::vector<std::int64_t>> positions_;  // of each call's rows
};

}  // namespace longhaul
