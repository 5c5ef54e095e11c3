// The one builder of what compensate() does (kernels/compensate.h), alone and on a ring: of heads
// that keep a key for what their windows have left behind, what goes into which sums, and which
// queries ask for them.
#pragma once
#include <span>
#include <vector>

#include "base/device/device.h"
#include "base/ids.h"
#include "kernels/compensate.h"
#include "worker/attention/attention_work.h"
#include "worker/kv/cache_layout.h"

namespace longhaul {

// Used by one thread. Local.
class Compensation {
 public:
  // The layout must outlive it.
  Compensation(const ModelSpec& spec, const CacheLayout& layout, StreamRef stream);

  // Starts an empty list for one layer.
  void begin(LayerId layer);
  // Lets into the sums all that is gone for the query at `next`. The blocks ascend and hold what
  // goes; they and the sums stay where they are until run(). Each sums are named once in a list.
  void let_go(KvHeadId kv_head, GoneSums& sums, std::span<const KvBlockRef> blocks, TokenPos next);
  // The same, and adds the key to the states of the queries in these rows, whose positions ascend.
  void add(const QueryRows& queries, KvHeadId kv_head, Extent rows, GoneSums& sums,
           std::span<const KvBlockRef> blocks, TokenPos next);
  void run();

 private:
  CompensateItem item(KvHeadId kv_head, GoneSums& sums, std::span<const KvBlockRef> blocks,
                      TokenPos next) const;

  const CacheLayout& layout_;
  StreamRef stream_;
  float sm_scale_;
  LayerId layer_;
  std::vector<CompensateItem> items_;
};

}  // namespace longhaul
