// Which items of attention go to the kernel for Hopper's tensor cores, on GPUs of compute
// capability 9.0; all others, and on all other GPUs, take the kernels of
// kernels/cuda/attention_mma.cuh. For benchmarks and tests; one setting for the process, not to be
// changed while attention runs.
#pragma once
#include <cstdint>

namespace longhaul {

// Rows (queries x heads of a group) from which on an item is worth the conversion of its keys.
inline constexpr std::int64_t kUsualHopperRows = 2048;
// Tokens of a chunk, for each rank, where nobody says how many: the shortest of which attention on
// an H100 spends at least 95 % of its time with products, whatever the document (played by
// attention_busy_test for groups of 4 heads). Shorter ones convert keys too often, and leave
// multiprocessors without work.
inline constexpr std::int64_t kUsualGpuChunkLen = 4096;
std::int64_t hopper_attention_rows();
void set_hopper_attention_rows(std::int64_t n_rows);

}  // namespace longhaul
