#include "worker/kv/cache_size.h"

#include <algorithm>

#include "worker/kv/cache_layout.h"

namespace longhaul {
namespace {

std::size_t bytes_from_block(const CacheSizeArgs& args, std::int64_t n_tokens,
                             std::int64_t first_block) {
  std::int64_t n_blocks = 0;
  for (std::int64_t layer = args.layers.begin; layer < args.layers.end; ++layer) {
    for (std::int64_t kv_head = 0; kv_head < args.spec.n_kv_heads; ++kv_head) {
      n_blocks += head_cache_blocks(head_mask(args.spec, args.roles, layer, kv_head),
                                    args.shape.block_size, n_tokens, first_block);
    }
  }
  return static_cast<std::size_t>(n_blocks) * args.shape.bytes();
}

}  // namespace

std::int64_t head_cache_blocks(const AttentionMask& mask, std::int64_t block_size,
                               std::int64_t n_tokens, std::int64_t first_block) {
  const std::int64_t n_all = ceil_div(n_tokens, block_size);
  const std::int64_t n_full = n_tokens / block_size;
  // A full block b is gone when its first token is past the sink, b >= ceil(sink / block_size), and
  // its last one out of the window of the query at n_tokens: (b + 1) * block_size - 1 <= n_tokens -
  // recent.
  const std::int64_t n_sink = mask.sink / block_size + (mask.sink % block_size != 0 ? 1 : 0);
  const std::int64_t n_past = std::max<std::int64_t>(0, n_tokens - mask.recent + 1) / block_size;
  const std::int64_t gone_begin = std::max(n_sink, first_block);
  const std::int64_t gone_end = std::min(n_past, n_full);
  const std::int64_t n_gone = std::max<std::int64_t>(0, gone_end - gone_begin);
  return std::max<std::int64_t>(0, n_all - first_block) - n_gone;
}

std::size_t sequence_cache_bytes(const CacheSizeArgs& args, std::int64_t n_tokens) {
  return bytes_from_block(args, n_tokens, 0);
}

std::size_t fork_cache_bytes(const CacheSizeArgs& args, std::int64_t n_shared,
                             std::int64_t n_tokens) {
  if (n_tokens == n_shared) return 0;
  return bytes_from_block(args, n_tokens, n_shared / args.shape.block_size);
}

}  // namespace longhaul
