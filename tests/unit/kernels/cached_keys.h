// Blocks of random keys of a head, on the host and on the device that is tested.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kv_append.h"
#include "kernels/kv_block.h"
#include "tests/support/random.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {

struct CachedKeys {
  KvBlockShape shape;
  std::vector<std::vector<std::byte>> memory = {};
  std::vector<KvBlockRef> refs = {};
  std::vector<Memory<std::byte>> there = {};  // on the stream's device
  std::vector<KvBlockRef> refs_there = {};
};

// Normal values; V is K.
inline CachedKeys random_keys(Random& random, StreamRef stream, KvBlockShape shape,
                              std::int64_t n_tokens) {
  CachedKeys blocks{.shape = shape};
  const std::int64_t block_size = shape.block_size;
  for (std::int64_t first = 0; first < n_tokens; first += block_size) {
    const std::int64_t n = std::min(block_size, n_tokens - first);
    Tensor<float, 2> k({n, shape.head_dim});
    std::ranges::copy(random.normals(n * shape.head_dim), k.data());
    auto& bytes = blocks.memory.emplace_back(blocks.shape.bytes());
    std::byte* block = bytes.data();
    const KvAppendItem item{.k = k.view(), .v = k.view(), .blocks = {&block, 1}, .first_slot = 0};
    kv_append(StreamRef::cpu(), {.shape = blocks.shape, .items = {&item, 1}});
    blocks.refs.push_back({.data = bytes.data(), .first_position = first, .n_tokens = n});
    blocks.there.emplace_back(stream, bytes);
    blocks.refs_there.push_back(
        {.data = blocks.there.back().data(), .first_position = first, .n_tokens = n});
  }
  return blocks;
}

}  // namespace longhaul::test
