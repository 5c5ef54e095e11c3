#include "worker/kv/sequence_cache.h"

#include <algorithm>

#include "base/error.h"
#include "model/heads/kept_blocks.h"

namespace longhaul {

SequenceCache::SequenceCache(const CacheLayout& layout, BlockPool& pool)
    : layout_(&layout), pool_(&pool), block_bytes_(pool.shape().bytes()) {
  require(pool.shape() == layout.shape(), "SequenceCache: pool and layout differ in block shape");
  heads_.reserve(static_cast<std::size_t>(layout.layers().size() * layout.n_kv_heads()));
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId kv_head : layout.kv_head_ids()) {
      heads_.emplace_back(
          pool, layout.sees_all(layer, kv_head) ? BlockUse::kRetrieval : BlockUse::kStreaming);
      if (pool.open() != nullptr) open_.emplace_back(*pool.open(), heads_.back().use());
    }
  }
  if (pool.open() != nullptr) open_block_bytes_ = pool.open()->shape().bytes();
}

SequenceCache SequenceCache::fork() const {
  SequenceCache child(*layout_, *pool_, Empty{});
  child.heads_.reserve(heads_.size());
  for (const HeadCache& head : heads_) child.heads_.push_back(head.fork());
  for (const HeadCache& head : open_) child.open_.push_back(head.fork());
  child.open_block_bytes_ = open_block_bytes_;
  child.observed_ = observed_;
  child.page_bounds_ = page_bounds_;
  child.masses_ = masses_;
  child.local_masses_ = local_masses_;
  child.recipes_ = recipes_;
  child.classes_ = classes_;
  child.gone_ = gone_;
  child.merging_ = merging_;
  child.is_cut_ = is_cut_;
  return child;
}

std::int64_t SequenceCache::n_tokens() const {
  if (heads_.empty()) return 0;
  return (open_.empty() ? heads_ : open_).back().next_position().value;
}

std::vector<TokenPos> SequenceCache::positions(LayerId layer, KvHeadId kv_head) const {
  const HeadCache& closed = head(layer, kv_head);
  std::vector<TokenPos> positions = closed.positions();
  if (open_.empty()) return positions;
  for (const TokenPos position : open_[index(layer, kv_head)].positions())
    if (position >= closed.next_position()) positions.push_back(position);
  return positions;
}

void SequenceCache::advance_to(LayerId layer, TokenPos next) {
  for (const KvHeadId kv_head : layout_->kv_head_ids()) {
    HeadCache* const newest = open(layer, kv_head);
    head(layer, kv_head).advance_to(newest != nullptr ? whole_blocks(next) : next);
    if (newest != nullptr) newest->advance_to(next);
  }
}

void SequenceCache::trim(LayerId layer, TokenPos next) {
  for (const KvHeadId kv_head : layout_->kv_head_ids()) {
    head(layer, kv_head).free_hidden(hidden_positions(layout_->window(layer, kv_head), next.value));
    HeadCache* const newest = open(layer, kv_head);
    if (newest != nullptr) newest->free_hidden({0, whole_blocks(next).value});
  }
}

void SequenceCache::take_back(TokenPos next) {
  for (HeadCache& head : open_) head.take_back(next);
  for (HeadCache& head : heads_) {
    if (open_.empty()) {
      head.take_back(next);
    } else {  // a block that loses a token is open again
      head.take_back(std::min(whole_blocks(next), head.next_position()));
    }
  }
}

bool SequenceCache::keep(LayerId layer, KvHeadId kv_head, std::span<const SlotIndex> slots,
                         std::span<const SeenBy> seen_by) {
  require(layout_->sees_all(layer, kv_head),
          "SequenceCache: slots can be kept of heads that see every token only");
  if (!head(layer, kv_head).keep(slots, seen_by)) return false;
  if (!masses_.empty()) masses_[index(layer, kv_head)].keep(slots);
  return true;
}

bool SequenceCache::forget(LayerId layer, KvHeadId kv_head, SlotIndex slot) {
  if (!head(layer, kv_head).forget(slot)) return false;
  if (!masses_.empty()) masses_[index(layer, kv_head)].forget(slot);
  return true;
}

AttentionMass& SequenceCache::attention_mass(LayerId layer, KvHeadId kv_head) {
  if (masses_.empty()) masses_.resize(heads_.size());
  return masses_[index(layer, kv_head)];
}

AttentionMass& SequenceCache::local_mass(LayerId layer, KvHeadId kv_head) {
  if (local_masses_.empty()) local_masses_.resize(heads_.size());
  return local_masses_[index(layer, kv_head)];
}

std::optional<Recipe> SequenceCache::recipe(LayerId layer, KvHeadId kv_head) const {
  return recipes_.empty() ? std::nullopt : recipes_[index(layer, kv_head)];
}

void SequenceCache::set_recipe(LayerId layer, KvHeadId kv_head, const Recipe& recipe) {
  recipes_.resize(heads_.size());
  recipes_[index(layer, kv_head)] = recipe;
  local_mass(layer, kv_head) = {};
}

GoneSums& SequenceCache::gone(LayerId layer, KvHeadId kv_head) {
  if (gone_.empty()) gone_.resize(heads_.size());
  return gone_[index(layer, kv_head)];
}

MergeState& SequenceCache::merge_state(LayerId layer) {
  merging_.resize(static_cast<std::size_t>(layout_->layers().size()));
  auto& state = merging_[static_cast<std::size_t>(layer.value - layout_->layers().begin)];
  if (state == nullptr) state = std::make_shared<MergeState>(MergeState{RawTokens(*pool_)});
  if (state.use_count() > 1) state = std::make_shared<MergeState>(*state);
  return *state;
}

const MergeState* SequenceCache::merge_state(LayerId layer) const {
  if (merging_.empty()) return nullptr;
  return merging_[static_cast<std::size_t>(layer.value - layout_->layers().begin)].get();
}

std::span<const double> SequenceCache::attention_sums(LayerId layer, KvHeadId kv_head) const {
  if (masses_.empty()) return {};
  return masses_[index(layer, kv_head)].sums();
}

std::span<const double> SequenceCache::local_attention_sums(LayerId layer, KvHeadId kv_head) const {
  if (local_masses_.empty()) return {};
  return local_masses_[index(layer, kv_head)].sums();
}

PageBounds& SequenceCache::page_bounds(LayerId layer, KvHeadId kv_head) {
  if (page_bounds_.empty()) page_bounds_.resize(heads_.size());
  return page_bounds_[index(layer, kv_head)];
}

std::size_t SequenceCache::bytes() const {
  std::size_t n_blocks = 0;
  for (const HeadCache& head : heads_) n_blocks += head.blocks().size();
  std::size_t n_open = 0;
  for (const HeadCache& head : open_) n_open += head.blocks().size();
  return n_blocks * block_bytes_ + n_open * open_block_bytes_;
}

}  // namespace longhaul
