// How attention is cut for the Hopper kernel. Pure; needs no CUDA.
//
// The kernel reads K and V in units of kUnitKeys keys in a layout of its own, into which they are
// converted first; so many units as fit into the conversion's memory are a pass. Where an item has
// few tiles of rows, its keys are cut into ranges whose partial states are merged. How an item is
// cut depends on it alone: its result has the same bits beside any others.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention_work.h"

namespace longhaul::cuda {

constexpr int kUnitKeys = 64;
constexpr int kHopperRows = 128;

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

// `most_units`: of a pass.
std::vector<HopperPass> make_hopper_passes(const AttentionArgs& args, std::int64_t most_units);

}  // namespace longhaul::cuda
