// Prefill attention on Hopper's tensor cores.
#pragma once
#include "base/device/device_cuda.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_hopper_schedule.h"

namespace longhaul::cuda {

// Whether there is a kernel for such blocks in this build and on this GPU.
bool has_hopper_kernel(const KvBlockShape& shape, const DeviceInfo& device);
// attention() for such items of any number of rows.
void attention_hopper(Stream& stream, const AttentionArgs& args);

// Queues the conversion of units (in GPU memory) to `prepared`, one after the other, each 256
// head_dim bytes: K [head_dim / 8, kUnitKeys, 8 dims] of bf16, then V [kUnitKeys / 8, head_dim, 8
// keys]; zeros where a unit's block has ended.
void prepare_keys(Stream& stream, const KvBlockShape& shape, const KeyUnit* units,
                  std::int64_t n_units, std::byte* prepared);

// Of attention.cu: queues the merging of partial states, each with room for `tile_rows` rows, into
// the items' states.
void merge_ranges(Stream& stream, const AttentionWork& work, const AttentionSplit* splits,
                  std::int64_t n_splits, std::int64_t tile_rows);

}  // namespace longhaul::cuda
