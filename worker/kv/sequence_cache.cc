#include "worker/kv/sequence_cache.h"

#include "base/error.h"

namespace longhaul {

SequenceCache::SequenceCache(const CacheLayout& layout, BlockPool& pool)
    : layout_(&layout), block_bytes_(pool.shape().bytes()) {
  require(pool.shape() == layout.shape(), "SequenceCache: pool and layout differ in block shape");
  heads_.reserve(static_cast<std::size_t>(layout.layers().size() * layout.n_kv_heads()));
  for (std::int64_t layer = layout.layers().begin; layer < layout.layers().end; ++layer) {
    for (std::int64_t kv_head = 0; kv_head < layout.n_kv_heads(); ++kv_head) {
      heads_.emplace_back(
          pool, layout.keeps_all(layer, kv_head) ? BlockUse::kRetrieval : BlockUse::kStreaming);
    }
  }
}

SequenceCache SequenceCache::fork() const {
  SequenceCache child(*layout_, block_bytes_, Empty{});
  child.heads_.reserve(heads_.size());
  for (const HeadCache& head : heads_) child.heads_.push_back(head.fork());
  return child;
}

std::int64_t SequenceCache::n_tokens() const {
  return heads_.empty() ? 0 : heads_.back().n_tokens();
}

void SequenceCache::trim(std::int64_t layer) {
  for (std::int64_t kv_head = 0; kv_head < layout_->n_kv_heads(); ++kv_head) {
    HeadCache& cache = head(layer, kv_head);
    cache.free_hidden(
        layout_->policy(layer, kv_head).decide({.n_tokens = cache.n_tokens()}).hidden);
  }
}

std::size_t SequenceCache::bytes() const {
  std::size_t n_blocks = 0;
  for (const HeadCache& head : heads_) n_blocks += head.blocks().size();
  return n_blocks * block_bytes_;
}

}  // namespace longhaul
