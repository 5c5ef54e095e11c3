// The caches of one sequence: one HeadCache for each (layer, KV head) that this worker serves.
// A fork shares all blocks and owns only what is appended later; destroying a sequence gives back
// the blocks that nobody else shares.
//
// Types that quantise groups of tokens (KIVI, arXiv 2402.02750) cannot be written token by token.
// Then a head has a second HeadCache, of open blocks in f32, for its newest tokens. A block that is
// full is closed at once: quantised into a block of the first cache, which has whole blocks only.
// Queries of the block's own tokens meet it open, later ones closed
// (worker/attention/open_items.h), so what a query meets depends on positions alone. Open blocks go
// when no later query asks them and their tokens can no longer be taken back.
//
//   blocks of 4, 10 tokens in chunks of 6 and 4:   closed      open
//   after the first chunk                          0 1 2 3     4 5
//   in the layer at hand of the second             0 .. 7      4 5 6 7 | 8 9
//   after it                                       0 .. 7      8 9
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/compensate.h"
#include "model/heads/recipe.h"
#include "worker/kv/attention_mass.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/cache_layout.h"
#include "worker/kv/head_cache.h"
#include "worker/kv/merge_state.h"
#include "worker/kv/observed_queries.h"
#include "worker/kv/page_bounds.h"
#include "worker/kv/text_classes.h"

namespace longhaul {

// Used by one thread; layout and pool must outlive it.
class SequenceCache {
 public:
  SequenceCache(const CacheLayout& layout, BlockPool& pool);
  SequenceCache fork() const;

  const CacheLayout& layout() const { return *layout_; }
  HeadCache& head(LayerId layer, KvHeadId kv_head) { return heads_[index(layer, kv_head)]; }
  const HeadCache& head(LayerId layer, KvHeadId kv_head) const {
    return heads_[index(layer, kv_head)];
  }
  // Its open blocks; null where tokens are written one by one.
  HeadCache* open(LayerId layer, KvHeadId kv_head) {
    return open_.empty() ? nullptr : &open_[index(layer, kv_head)];
  }
  const HeadCache* open(LayerId layer, KvHeadId kv_head) const {
    return open_.empty() ? nullptr : &open_[index(layer, kv_head)];
  }
  // Where the tokens stand that a head holds, as HeadCache::positions.
  std::vector<TokenPos> positions(LayerId layer, KvHeadId kv_head) const;
  // Tokens whose K and V all layers have.
  std::int64_t n_tokens() const;
  // The layer has the tokens before this position now, wherever they are stored, and those of full
  // blocks closed (HeadCache::advance_to).
  void advance_to(LayerId layer, TokenPos next);
  // Frees the layer's blocks that its policies give up: no query from position `next` on sees them.
  // Call when the layer's newest tokens have been attended to: in a long chunk, only one layer then
  // holds more than it keeps. Tokens behind `next` may still be taken back.
  void trim(LayerId layer, TokenPos next);
  // Forgets the tokens from this position on: HeadCache::take_back for every head.
  void take_back(TokenPos next);
  // Keeps the slots of one head that sees every token, and forgets its others (HeadCache::keep).
  // Throws kInvalidArgument for a head with a window.
  bool keep(LayerId layer, KvHeadId kv_head, std::span<const SlotIndex> slots,
            std::span<const SeenBy> seen_by = {});
  // The newest queries of each layer, for methods that choose tokens by them.
  ObservedQueries& observed() { return observed_; }
  const ObservedQueries& observed() const { return observed_; }
  // What a head's slots got of attention, for methods that sum it up.
  AttentionMass& attention_mass(LayerId layer, KvHeadId kv_head);
  // The part of it that came from queries in whose local window the slot was; no slot is kept or
  // forgotten of it.
  AttentionMass& local_mass(LayerId layer, KvHeadId kv_head);
  // What kinds of tokens the sequence has, where heads ask for that.
  TextClasses& classes() { return classes_; }
  const TextClasses& classes() const { return classes_; }
  // What a head goes by since its text was whole (FastGen); nullopt before.
  std::optional<Recipe> recipe(LayerId layer, KvHeadId kv_head) const;
  // Local sums are no longer asked for then.
  void set_recipe(LayerId layer, KvHeadId kv_head, const Recipe& recipe);
  // What has left the window of a head that keeps a key for it (Rest).
  GoneSums& gone(LayerId layer, KvHeadId kv_head);
  // The same; of none where nobody summed it up.
  GoneSums gone_sums(LayerId layer, KvHeadId kv_head) const {
    return gone_.empty() ? GoneSums{} : gone_[index(layer, kv_head)];
  }
  // What the layer's next tokens may merge with (DMC), for going on; on every rank that serves the
  // layer, of all KV heads, wherever their blocks are.
  MergeState& merge_state(LayerId layer);
  // The same; null where no head of the layer merged anything.
  const MergeState* merge_state(LayerId layer) const;
  // Empty where nobody summed it up.
  std::span<const double> attention_sums(LayerId layer, KvHeadId kv_head) const;
  std::span<const double> local_attention_sums(LayerId layer, KvHeadId kv_head) const;
  // Whether methods have chosen, at the document's end, which of its tokens stay.
  bool is_cut() const { return is_cut_; }
  void set_cut() { is_cut_ = true; }
  // Forgets one slot of such a head as HeadCache::forget does.
  bool forget(LayerId layer, KvHeadId kv_head, SlotIndex slot);
  // Of a head that chooses pages.
  PageBounds& page_bounds(LayerId layer, KvHeadId kv_head);
  // Bytes of the blocks that it reads; blocks shared with others are counted whole.
  std::size_t bytes() const;

 private:
  struct Empty {};
  SequenceCache(const CacheLayout& layout, BlockPool& pool, Empty)
      : layout_(&layout), pool_(&pool), block_bytes_(pool.shape().bytes()) {}
  std::size_t index(LayerId layer, KvHeadId kv_head) const {
    return static_cast<std::size_t>(
        (layer.value - layout_->layers().begin) * layout_->n_kv_heads() + kv_head.value);
  }
  // Of the tokens before `next`, the end of the last full block's.
  TokenPos whole_blocks(TokenPos next) const {
    const std::int64_t block_size = layout_->shape().block_size;
    return {next.value / block_size * block_size};
  }
  const CacheLayout* layout_;
  BlockPool* pool_;
  std::size_t block_bytes_;
  std::size_t open_block_bytes_ = 0;
  std::vector<HeadCache> heads_;  // [layers, n_kv_heads], published order
  std::vector<HeadCache> open_;   // as heads_, or empty
  ObservedQueries observed_;
  std::vector<PageBounds> page_bounds_;               // as heads_; empty until they are asked for
  std::vector<AttentionMass> masses_;                 // the same
  std::vector<AttentionMass> local_masses_;           // the same
  std::vector<std::optional<Recipe>> recipes_;        // the same
  std::vector<GoneSums> gone_;                        // the same
  std::vector<std::shared_ptr<MergeState>> merging_;  // [layers], null or none; shared with forks
  TextClasses classes_;
  bool is_cut_ = false;
};

}  // namespace longhaul
