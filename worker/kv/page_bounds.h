// The bounds of one (sequence, layer, KV head)'s pages on this rank, kept beside its cache: of
// every page the smallest and largest value of its keys in each channel (kernels/page_bound.h).
// Made from the blocks when they are asked for, and then only from what is there since. Forks share
// the tiles that neither of them has changed. In the memory of the cache's device.
//
// A page is page_tokens slots of a block, which holds whole pages; pages are counted as they lie:
//
//   pages of 2, blocks of 4     blocks       0..3    8..11     12 (partial)
//                               pages        0  1    2   3     4
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/device_tensor.h"
#include "kernels/kv_block.h"
#include "kernels/page_bound.h"

namespace longhaul {

// Used by one thread.
class PageBounds {
 public:
  // A page that is here.
  struct Page {
    std::size_t block = 0;  // of those given to update()
    std::int64_t first_slot = 0;
    std::int64_t n_tokens = 0;
    std::int64_t number = 0;  // in the sequence: its first position / page_tokens
  };

  // Brings bounds up to date with the cache's blocks, which ascend; since the last time they may
  // have got tokens, and tokens may have gone. Throws kInvalidArgument unless page_tokens divides
  // the block size and each block begins with a multiple of that.
  void update(StreamRef stream, const KvBlockShape& shape, std::int64_t page_tokens,
              std::span<const KvBlockRef> blocks);

  std::span<const Page> pages() const { return pages_; }
  // Their bounds, kBoundPages to a tile (kernels/page_bound.h).
  std::span<const float* const> tiles() const { return tiles_of_pages_; }
  // Forks count what they share too.
  std::size_t bytes() const;

 private:
  // Several are taken at once: a GPU's memory is not for small pieces.
  struct Tile {
    std::shared_ptr<DeviceTensor<float, 2>> memory;
    float* data = nullptr;
  };
  struct Keys {  // of one page
    std::size_t block = 0;
    std::int64_t page_tokens = 0;
    Extent slots;
  };
  // What update() has found of one page's keys.
  struct Widened {
    std::size_t page = 0;
    WidenBoundsItem item;
  };
  void add_keys(const KvBlockRef& block, const Keys& keys, std::vector<Widened>& widened);
  void widen(StreamRef stream, const KvBlockShape& shape, std::span<const Widened> widened);
  void own_tile(StreamRef stream, std::size_t index);

  struct Known {  // of a block whose pages have bounds
    std::int64_t first_position = 0;
    std::int64_t n_tokens = 0;
  };
  std::vector<Known> known_;
  std::vector<Page> pages_;
  std::vector<std::shared_ptr<Tile>> tiles_;
  std::vector<const float*> tiles_of_pages_;
  std::int64_t tile_floats_ = 0;
};

}  // namespace longhaul
