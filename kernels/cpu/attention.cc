// Attention of one tile of queries over paged blocks, on one thread: online softmax (Milakov &
// Gimelshein 2018; FlashAttention, Dao et al. 2022).
//
// Keys are taken in panels of at most kPanelKeys, each a few runs of neighbouring slots of blocks.
// A panel's scores are one matrix product, the softmax goes over whole rows of the panel, and its
// values are a second product that adds to the outputs. Blocks that the mask hides from the whole
// tile never enter a panel; runs that every query sees are not masked.
//
// Few rows wait for memory: products read the blocks in place (attention_products.h). For many rows
// a panel is packed first (attention_packed.h), unless its words multiply as they are: pairs of
// bf16 by VDPBF16PS, codes by integer products.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/attention_packed.h"
#include "kernels/cpu/attention_products.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_tile.h"

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
  if (run.n_tokens < run.n_keys) return false;
  const std::int64_t last = run.first_position + run.n_keys - 1;
  if (last > tile.first_position) return false;
  return last < task.mask_sink || tile.last_position - run.first_position < task.mask_recent;
}

void score_panel(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  switch (task.k_type) {
    case KvType::kF32:
      tile.packs_k ? compute_packed_scores<KvType::kF32>(task, tile, panel)
                   : compute_scores<FloatProduct>(task, tile, panel);
      break;
    case KvType::kBf16:
      if (multiplies_pairs(task, KvType::kBf16)) {
        compute_scores<PairedBf16Product>(task, tile, panel);
      } else {
        tile.packs_k ? compute_packed_scores<KvType::kBf16>(task, tile, panel)
                     : compute_scores<WidenedBf16Product>(task, tile, panel);
      }
      break;
    case KvType::kInt8:
      compute_scores<Int8Product>(task, tile, panel);
      break;
    case KvType::kInt4:
      compute_scores<Int4Product>(task, tile, panel);
  }
}

void add_panel(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  switch (task.v_type) {
    case KvType::kF32:
      tile.packs_v ? add_packed_values<KvType::kF32>(task, tile, panel)
                   : add_values<FloatProduct>(task, tile, panel);
      break;
    case KvType::kBf16:
      if (multiplies_pairs(task, KvType::kBf16)) {
        add_values<PairedBf16Product>(task, tile, panel);
      } else {
        tile.packs_v ? add_packed_values<KvType::kBf16>(task, tile, panel)
                     : add_values<WidenedBf16Product>(task, tile, panel);
      }
      break;
    case KvType::kInt8:
      add_values<Int8Product>(task, tile, panel);
      break;
    case KvType::kInt4:
      add_values<Int4Product>(task, tile, panel);
  }
}

void attend_panel(const AttentionTask& task, const Tile& tile, Panel& panel) {
  if (panel.n_keys == 0) return;
  score_panel(task, tile, panel);
  hide_scores(task, tile, panel);
  if (tile.n_rows <= kFewRows) prefetch_next_values(task, panel, 0);
  if (multiplies_pairs(task, task.v_type)) {
    softmax<kHasBf16Pairs ? Into::kBf16Pairs : Into::kFloats>(task, tile, panel.n_keys);
  } else if (holds_codes(task.v_type)) {
    softmax<Into::kCodeWeights>(task, tile, panel.n_keys);
  } else {
    softmax<Into::kFloats>(task, tile, panel.n_keys);
  }
  add_panel(task, tile, panel);
  panel.n_runs = panel.n_keys = 0;
}

}  // namespace

std::size_t attend_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t wide = round_up(head_dim, kDimUnit);
  const std::int64_t floats =
      kRows * (head_dim + kScoreStride + wide + 11) + packed_floats(head_dim) + 16 * 14;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void attend(const AttentionTask& task) {
  const FlushDenormals flush;
  Tile tile = divide_scratch(task);
  load_tile(task, tile);
  Panel panel;
  panel.n_runs = panel.n_keys = 0;
  for (std::int64_t b = 0; b < task.n_blocks; ++b) {
    const KvBlockRef& block = task.blocks[b];
    const Slots slots = visible_slots(task, tile, block);
    const auto* k = reinterpret_cast<const float*>(block.data);
    const auto* v = reinterpret_cast<const float*>(block.data + task.v_at);
    const auto halves = [&](std::size_t at, std::int64_t slot) {
      return reinterpret_cast<const std::uint16_t*>(block.data + at) + slot;
    };
    for (std::int64_t slot = slots.begin; slot < slots.end;) {
      Run run;
      run.n_keys = smaller(slots.end - slot, kPanelKeys - panel.n_keys);
      run.k = k + slot;
      run.v = v + slot / task.v_lanes * task.head_dim;
      run.k_scales = halves(task.k_scales_at, slot);
      run.k_minima = halves(task.k_minima_at, slot);
      run.v_scales = halves(task.v_scales_at, slot);
      run.v_minima = halves(task.v_minima_at, slot);
      run.first_position = block.first_position + slot;
      run.n_tokens = smaller(block.n_tokens - slot, run.n_keys);
      run.masked = !every_query_sees(task, tile, run);
      panel.runs[panel.n_runs++] = run;
      panel.n_keys += run.n_keys;
      slot += run.n_keys;
      panel.next_block = b + 1;
      if (panel.n_keys == kPanelKeys) attend_panel(task, tile, panel);
    }
  }
  attend_panel(task, tile, panel);
  store_tile(task, tile);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
