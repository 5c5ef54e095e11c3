// How CPUs cut attention into tasks: query tile x range of blocks. How an item is cut depends on
// the item alone, so its result depends neither on the number of threads nor on the other items.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/isa/attention.h"

namespace longhaul::cpu {

// The partial states of one tile's block ranges, and where they are merged into.
struct SplitTile {
  SoftmaxStateView into;
  std::int64_t first_float = 0;  // of its partial states in the scratch memory
  std::int64_t n_ranges = 0;
};

struct AttentionSchedule {
  std::vector<AttentionTask> tasks;
  std::vector<SplitTile> splits;
  // Of each task: the number of its split and range; -1 where it adds to the item's state itself.
  std::vector<std::pair<std::int64_t, std::int64_t>> split_of;
  std::int64_t n_partial_floats = 0;
};

// The tasks of all items. They add to the items' states; where a tile's keys are split, redirect()
// has each of its tasks write a partial state instead.
AttentionSchedule schedule_attention(const AttentionArgs& args);

// The partial state of a range of the tile's blocks; `partials` has n_partial_floats.
SoftmaxStateView partial_state(const SplitTile& split, std::int64_t range, float* partials);
void redirect(AttentionTask& task, const SoftmaxStateView& state);

}  // namespace longhaul::cpu
