// Which of a run's scores a query must not see. See kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Writes -inf over the scores of a row of the tile that its query must not see:
//   slots of the run:  sinks [0, sinks) | hidden | recent [recent, end) | hidden
// and of those that it sees by their positions the ones that its head does not.
void hide(const AttentionTask& task, const Tile& tile, const Run& run, std::int64_t row,
          float* scores) {
  const std::int64_t position = tile.position[row];
  const std::int64_t end = larger(0, smaller(run.n_tokens, position - run.first_position + 1));
  const std::int64_t sinks = larger(0, smaller(end, task.mask_sink - run.first_position));
  const std::int64_t recent =
      smaller(end, larger(sinks, position - task.mask_recent + 1 - run.first_position));
  for (std::int64_t i = sinks; i < recent; ++i) scores[i] = -kInfinity;
  for (std::int64_t i = end; i < run.n_keys; ++i) scores[i] = -kInfinity;
  if (run.seen_by == nullptr) return;
  const SeenBy head = SeenBy{1} << (task.first_head + (tile.first_row + row) % task.n_heads);
  for (std::int64_t i = 0; i < end; ++i) {
    if ((run.seen_by[i] & head) == 0) scores[i] = -kInfinity;
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
