#include "partition/open_blocks.h"

#include <algorithm>

namespace longhaul {
namespace {

RingPos maker_of(std::span<const Slab> slabs, std::int64_t token) {
  const auto slab = std::partition_point(slabs.begin(), slabs.end(),
                                         [&](const Slab& s) { return s.tokens.end <= token; });
  return slab->owner;
}

std::int64_t block_begin(std::int64_t token, const KvFormat& kv) {
  return token / kv.block_size * kv.block_size;
}

}  // namespace

std::vector<Slab> stored_slabs(std::span<const Slab> slabs, const KvFormat& kv) {
  std::vector<Slab> stored(slabs.begin(), slabs.end());
  if (!kv.has_open_blocks()) return stored;
  for (Slab& slab : stored)
    slab.tokens = {block_begin(slab.tokens.begin, kv), block_begin(slab.tokens.end, kv)};
  return stored;
}

std::optional<OpenBlock> begun_block(std::span<const Slab> slabs, const KvFormat& kv) {
  const std::int64_t begin = slabs.front().tokens.begin;
  const Extent before{block_begin(begin, kv), begin};
  if (!kv.has_open_blocks() || before.empty()) return std::nullopt;
  return OpenBlock{before, maker_of(slabs, begin)};
}

std::optional<OpenBlock> unfinished_block(std::span<const Slab> slabs, const KvFormat& kv) {
  const std::int64_t end = slabs.back().tokens.end;
  const Extent open{std::max(slabs.front().tokens.begin, block_begin(end, kv)), end};
  if (!kv.has_open_blocks() || open.empty()) return std::nullopt;
  return OpenBlock{open, maker_of(slabs, end - 1)};
}

}  // namespace longhaul
