// Attention under a window that slides by several tokens at a time (KeyWindow::slide). Queries of
// which the same tokens have left see the same first key, so they are one item over the blocks
// behind it; the block in which that key lies is seen in part, by each query with a mask of its
// own.
//
//   sink 4, recent 8, slide 4, blocks of 4:  queries 12 to 15 see 0..3 and 8.., 16 to 19 see 0..3
//   and 12..: two items. With slide 3 the first keys would be 7 and 10, inside of blocks.
#pragma once
#include <deque>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "model/heads/head_policy.h"

namespace longhaul {

// Used by one thread.
class SlidingItems {
 public:
  // Starts an empty list.
  void clear();
  // `item` is all queries with plain masks: its mask says how many sinks they see here. Appends
  // what they see of whole blocks to `items`.
  void add(const AttentionItem& item, const KeyWindow& window, std::vector<AttentionItem>& items);
  // The rest: an attention call of its own, since it adds to the same states. Valid until clear().
  std::span<const AttentionItem> edges() const { return edges_; }

 private:
  void add_group(const AttentionItem& group, std::int64_t first_recent,
                 std::vector<AttentionItem>& items);

  std::deque<std::vector<KvBlockRef>> blocks_;  // that items point into
  std::vector<AttentionItem> edges_;
};

}  // namespace longhaul
