// Heads of a layer as runs of neighbours, so that a rank's slice of a weight is a few contiguous
// pieces. Pure.
#pragma once
#include <span>
#include <vector>

#include "base/ids.h"

namespace longhaul {

// {0, 1, 2, 5, 6} -> [0, 3), [5, 7). `heads` ascend.
inline std::vector<Extent> head_runs(std::span<const KvHeadId> heads) {
  std::vector<Extent> runs;
  for (const KvHeadId head : heads) {
    if (runs.empty() || runs.back().end != head.value) runs.push_back({head.value, head.value});
    ++runs.back().end;
  }
  return runs;
}

}  // namespace longhaul
