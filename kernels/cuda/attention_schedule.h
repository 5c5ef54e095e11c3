// How attention is cut into work for a GPU. Pure; needs no CUDA.
//
// Items of up to 16 rows (decode) that begin with the same blocks, as sequences forked from one
// document do, share tiles: their rows are attended to those blocks together, which are then read
// once for all. Each item's blocks are cut into ranges by a rule that knows this item alone, each
// row is computed as it would be alone, and the ranges are merged in their order; so an item's
// result has the same bits whatever else is in the call.
//
// Prefill on tensor cores is cut by work_balance.h, longest tasks first. How a sequence's
// heads (sequence_heads.h) are cut depends on them and on the chip, and on no other sequence.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention_work.h"

namespace longhaul::cuda {

struct AttentionSchedule {
  std::vector<AttentionItemRef> items;
  std::vector<std::int64_t> positions;
  std::vector<KvBlockRef> blocks;
  std::vector<AttentionMember> members;
  std::vector<AttentionTask> tasks[4];  // of each path
  std::vector<AttentionSplit> splits[4];
  std::int64_t n_partial_floats = 0;
};

// Which kernels there are for the shape, and how many thread blocks of prefill the chip runs at a
// time.
struct AttentionKernels {
  bool mma = false;
  bool wide_decode = false;
  std::int64_t prefill_places = 1;
};
// Registers leave room for two on each multiprocessor.
constexpr std::int64_t kPrefillBlocksTogether = 2;

AttentionSchedule make_attention_schedule(const AttentionArgs& args, AttentionKernels kernels);

}  // namespace longhaul::cuda
