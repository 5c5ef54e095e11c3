// How attention is cut for the Hopper kernel. Pure; needs no CUDA.
//
// The kernel reads K and V in units of kUnitKeys keys in a layout of its own, into which they are
// converted first; so many units as fit into the conversion's memory are a pass, of any items.
// Where tiles do not fill the chip evenly, some are cut into ranges of keys whose partial states
// are merged (work_balance.h); tasks lie longest first. How a sequence's heads (sequence_heads.h)
// are cut depends on them and on the chip alone: their results have the same bits beside any other
// sequences.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/work_balance.h"

namespace longhaul::cuda {

constexpr int kHopperRows = kRowsOfPrefillRange;

// Slots [first_slot, first_slot + n_keys) of a block, n_keys <= kUnitKeys.
struct KeyUnit {
  const std::byte* block;
  std::int64_t first_position;
  std::int32_t first_slot;
  std::int32_t n_keys;
};

// A tile of rows of an item against the units of two extents; numbers of units are those of the
// pass. Its member of the pass, of the same number, says where its state goes.
struct HopperTask {
  std::int32_t item;
  std::int32_t first_row;
  std::int32_t n_rows;
  std::int32_t first_unit[2];
  std::int32_t end_unit[2];

  std::int64_t n_units() const { return end_unit[0] - first_unit[0] + end_unit[1] - first_unit[1]; }
};

struct HopperPass {
  std::vector<AttentionItemRef> items;
  std::vector<std::int64_t> positions;
  std::vector<KeyUnit> units;
  std::vector<HopperTask> tasks;
  std::vector<AttentionMember> members;  // of each task
  std::vector<AttentionSplit> splits;
  std::int64_t n_partial_floats = 0;
};

struct HopperLimits {
  std::int64_t most_units;       // of a pass
  std::int64_t multiprocessors;  // each with one task at a time
};
std::vector<HopperPass> make_hopper_passes(const AttentionArgs& args, const HopperLimits& limits);

}  // namespace longhaul::cuda
