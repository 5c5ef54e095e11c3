// The newest queries of one sequence, layer by layer, in host memory: methods that choose tokens by
// attention ask them once more when a text is whole. Forks share what they have in common.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "kernels/tensor.h"

namespace longhaul {

// Used by one thread.
class ObservedQueries {
 public:
  // Rows of one layer, in the order of their positions.
  struct Rows {
    std::vector<std::int64_t> positions;  // [n]
    std::vector<float> q;                 // [n, n_heads, head_dim], after RoPE
  };

  // Appends rows that follow those it has, and forgets all but the last n_last.
  void add(LayerId layer, const Rows& rows, std::int64_t n_last);
  // Null where there are none.
  const Rows* of(LayerId layer) const;
  void clear() { layers_.clear(); }

 private:
  std::vector<std::shared_ptr<const Rows>> layers_;  // [layers], null or shorter: none
};

}  // namespace longhaul
