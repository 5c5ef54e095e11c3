// Which keys a tile of queries meets: the blocks' slots that any of them may see, in panels. See
// kernels/cpu/isa/attention.cc.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

// Slots [begin, end) of a block that any query of the tile may see, rounded to whole units.
struct Slots {
  std::int64_t begin;
  std::int64_t end;
};

Slots visible_slots(const AttentionTask& task, const Tile& tile, const KvBlockRef& block) {
  const std::int64_t first = block.first_position;
  const std::int64_t end = smaller(block.n_tokens, tile.last_position - first + 1);
  std::int64_t begin = 0;
  if (first >= task.mask_sink) {  // else the block's first slot is a sink
    begin = larger(0, tile.first_position - task.mask_recent + 1 - first);
  }
  if (begin >= end) return {0, 0};
  return {begin / kRunUnit * kRunUnit, round_up(end, kRunUnit)};
}

bool every_query_sees(const AttentionTask& task, const Tile& tile, const Run& run) {
  if (run.n_tokens < run.n_keys || run.seen_by != nullptr) return false;
  const std::int64_t last = run.first_position + run.n_keys - 1;
  if (last > tile.first_position) return false;
  return last < task.mask_sink || tile.last_position - run.first_position < task.mask_recent;
}

// Slots from `slot` on of block `b`, at most n_keys of them.
Run run_of(const AttentionTask& task, const Tile& tile, std::int64_t b, std::int64_t slot,
           std::int64_t n_keys) {
  const KvBlockRef& block = task.blocks[b];
  const auto* k = reinterpret_cast<const float*>(block.data);
  const auto* v = reinterpret_cast<const float*>(block.data + task.v_at);
  const auto halves = [&](std::size_t at) {
    return reinterpret_cast<const std::uint16_t*>(block.data + at) + slot;
  };
  const std::int64_t to_block = holds_groups(task.k_type) ? -slot : 0;
  Run run = {.k = k + slot,
             .v = v + slot / task.v_lanes * task.head_dim,
             .k_scales = halves(task.k_scales_at) + to_block,
             .k_minima = halves(task.k_minima_at) + to_block,
             .v_scales = halves(task.v_scales_at),
             .v_minima = halves(task.v_minima_at),
             .n_keys = n_keys,
             .first_slot = slot,
             .first_position = block.first_position + slot,
             .n_tokens = smaller(block.n_tokens - slot, n_keys),
             .seen_by = block.seen_by == nullptr ? nullptr : block.seen_by + slot,
             .masked = false};
  run.masked = !every_query_sees(task, tile, run);
  return run;
}

std::int64_t most_panel_keys(const AttentionTask& task) {
  if (!task.reads_in_order) return kPanelKeys;
  return smaller(kPanelKeys, larger(kFewestPanelKeys, task.block_size));
}

// How many keys from this position on fit into a panel that has so many already.
std::int64_t room_in_panel(const AttentionTask& task, std::int64_t position, std::int64_t n_keys) {
  if (!task.rows_apart) return most_panel_keys(task) - n_keys;
  return kPanelKeys - position % kPanelKeys;
}

// With rows apart: whether the panel ends before this position.
bool ends_before(const AttentionTask& task, const Panel& panel, std::int64_t position) {
  return task.rows_apart && panel.n_keys > 0 &&
         panel.runs[0].first_position / kPanelKeys != position / kPanelKeys;
}

// Calls attend(panel) for one panel after the other, all but the last one full; with rows apart
// those that end at multiples of kPanelKeys.
template <typename Attend>
LONGHAUL_INLINE void for_each_panel(const AttentionTask& task, const Tile& tile,
                                    const Attend& attend) {
  Panel panel;
  panel.n_runs = panel.n_keys = 0;
  const std::int64_t most_keys = most_panel_keys(task);
  for (std::int64_t b = 0; b < task.n_blocks; ++b) {
    const Slots slots = visible_slots(task, tile, task.blocks[b]);
    for (std::int64_t slot = slots.begin; slot < slots.end;) {
      const std::int64_t position = task.blocks[b].first_position + slot;
      if (ends_before(task, panel, position)) {
        attend(panel);
        panel.n_runs = panel.n_keys = 0;
      }
      const std::int64_t n_keys = smaller(
          kMostRunKeys, smaller(slots.end - slot, room_in_panel(task, position, panel.n_keys)));
      if (panel.n_runs == 0) panel.first_block = b;
      panel.runs[panel.n_runs++] = run_of(task, tile, b, slot, n_keys);
      panel.n_keys += n_keys;
      slot += n_keys;
      panel.next_block = b + 1;
      if (panel.n_keys < most_keys) continue;
      attend(panel);
      panel.n_runs = panel.n_keys = 0;
    }
  }
  if (panel.n_keys > 0) attend(panel);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
