// Open blocks that are full are closed: quantised into blocks of the cache, each where it is at
// home (worker/kv/sequence_cache.h).
#pragma once
#include <vector>

#include "base/device/device.h"
#include "kernels/kv_close.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {

// Used by one thread.
class CloseBlocks {
 public:
  // Makes room for what one head has to close. Throws kOutOfMemory when the pool has no block.
  void add(LayerId layer, KvHeadId kv_head, SequenceCache& cache);
  // Closes all that were added.
  void run(StreamRef stream, const KvBlockShape& shape);

 private:
  std::vector<KvCloseItem> items_;
};

}  // namespace longhaul
