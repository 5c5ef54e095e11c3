// Attention where the newest tokens lie in open blocks (worker/kv/sequence_cache.h): queries of one
// block's tokens meet that block open, up to themselves, and all blocks before it closed. That is
// what KIVI (arXiv 2402.02750, algorithm 1) does in decoding: the residual, whose length is a block
// here, is quantised when it is full, after its last token's query was asked. It holds for prompts
// too, so that results do not depend on chunks.
//
//   blocks of 4:  queries 4 to 7 meet 0 .. 3 closed and 4 .. 7 open; 8 and 9: 0 .. 7 and 8 .. 9
//
// Queries without a window are one item over closed blocks: as queries at the last position before
// their own block they see just these. A window is counted from a query's own position: there the
// queries of each block are an item.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/attention.h"

namespace longhaul {

// Used by one thread.
class OpenItems {
 public:
  // Starts an empty list.
  void clear() {
    open_.clear();
    before_own_.clear();
  }
  // `item` is all queries, with the closed blocks, which ascend. Appends to `closed` what they see
  // of these; positions of queries there are valid until clear(). `open` are those of all the
  // queries' tokens; or none, where queries meet them at another time or on another rank.
  void add(const AttentionItem& item, std::int64_t block_size, std::span<const KvBlockRef> open,
           std::vector<AttentionItem>& closed);
  // What they see of open blocks: an attention call of its own, of another block shape. Valid until
  // clear().
  std::span<const AttentionItem> open() const { return open_; }

 private:
  void add_closed(const AttentionItem& item, std::int64_t block_size,
                  std::vector<AttentionItem>& closed);
  std::span<const std::int64_t> before_own(std::span<const std::int64_t> positions,
                                           std::int64_t block_size);

  std::vector<AttentionItem> open_;
  // By queries' positions: the last ones before their blocks. The same for all heads of a sequence,
  // by which kernels know that they are of one.
  std::map<std::pair<const std::int64_t*, std::size_t>, std::vector<std::int64_t>> before_own_;
};

}  // namespace longhaul
