// What few rows of attention ask memory for ahead of a panel. See kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/read_ahead.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// How many lines ahead few rows ask, where a panel is a block as it lies.
constexpr std::int64_t kLinesAhead = kLocality == 3 ? 192 : 384;

// Moves `ahead` to what is read some time after the beginning of the panel.
void begin_asking(const AttentionTask& task, const Panel& panel, ReadAhead& ahead) {
  const bool as_it_lies = panel.n_runs == 1 && panel.n_keys == task.block_size;
  const std::int64_t first = panel.runs[0].first_slot * ahead.block_lines / task.block_size;
  const std::int64_t n_lines = panel.n_keys * ahead.block_lines / task.block_size;
  ahead.move_to(panel.first_block, first + (as_it_lies ? kLinesAhead : n_lines));
}

ReadAhead blocks_of(const AttentionTask& task) {
  return {.blocks = task.blocks,
          .n_blocks = task.n_blocks + task.n_blocks_ahead,
          .block_lines = larger(1, static_cast<std::int64_t>(task.block_bytes) / kLineBytes)};
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
