// Attention of one tile of queries over paged blocks, on one thread: online softmax (Milakov &
// Gimelshein 2018; FlashAttention, Dao et al. 2022).
//
// Keys are taken in panels of at most kPanelKeys, each a few runs of neighbouring slots of blocks.
// A panel's scores are one matrix product, the softmax goes over whole rows of the panel, and its
// values are a second product that adds to the outputs. Blocks that the mask hides from the whole
// tile never enter a panel; runs that every query sees are not masked.
//
// Few rows wait for memory: products read the blocks in place (attention_products.h), and ask for
// them before that (read_ahead.h). For many rows a panel is packed first (attention_packed.h),
// unless its words multiply as they are: pairs of bf16, as which fp8 is packed, by VDPBF16PS, codes
// by integer products. Codes in groups (KIVI: keys of a token have a range of their own in every
// dim, and values in every group of dims) multiply as they are for few rows only
// (attention_group_products.h).
#include "kernels/cpu/isa/attention.h"

#include "kernels/cpu/isa/attention_asking.h"
#include "kernels/cpu/isa/attention_fp8_pairs.h"
#include "kernels/cpu/isa/attention_group_products.h"
#include "kernels/cpu/isa/attention_packed.h"
#include "kernels/cpu/isa/attention_panels.h"
#include "kernels/cpu/isa/attention_products.h"
#include "kernels/cpu/isa/attention_queries.h"
#include "kernels/cpu/isa/attention_softmax.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/attention_weights.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

void score_fp8(const AttentionTask& task, const Tile& tile, const Panel& panel) {
#if defined(__AVX512BF16__)
  if (multiplies_pairs(task, KvType::kFp8)) {
    tile.packs_k ? compute_paired_scores(task, tile, panel)
                 : compute_scores<PairedFp8Product>(task, tile, panel);
    return;
  }
#endif
  tile.packs_k ? compute_packed_scores<KvType::kFp8>(task, tile, panel)
               : compute_scores<WidenedFp8Product>(task, tile, panel);
}

void add_fp8(const AttentionTask& task, const Tile& tile, const Panel& panel) {
#if defined(__AVX512BF16__)
  if (multiplies_pairs(task, KvType::kFp8)) {
    tile.packs_v ? add_paired_values(task, tile, panel)
                 : add_values<PairedFp8Product>(task, tile, panel);
    return;
  }
#endif
  tile.packs_v ? add_packed_values<KvType::kFp8>(task, tile, panel)
               : add_values<WidenedFp8Product>(task, tile, panel);
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
      break;
    case KvType::kKivi4:
      tile.packs_k ? compute_packed_scores<KvType::kKivi4>(task, tile, panel)
                   : compute_group_scores<4>(task, tile, panel);
      break;
    case KvType::kKivi2:
      tile.packs_k ? compute_packed_scores<KvType::kKivi2>(task, tile, panel)
                   : compute_group_scores<2>(task, tile, panel);
      break;
    case KvType::kFp8:
      score_fp8(task, tile, panel);
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
      break;
    case KvType::kKivi4:
      tile.packs_v ? add_packed_values<KvType::kKivi4>(task, tile, panel)
                   : add_group_values<4>(task, tile, panel);
      break;
    case KvType::kKivi2:
      tile.packs_v ? add_packed_values<KvType::kKivi2>(task, tile, panel)
                   : add_group_values<2>(task, tile, panel);
      break;
    case KvType::kFp8:
      add_fp8(task, tile, panel);
  }
}

bool asks_ahead(const Tile& tile) {
  return tile.n_rows < kPrefetchGroups * kTileRows && !tile.packs_k && !tile.packs_v;
}

// Scores -> the left side of the product with values.
void into_left_side(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  constexpr Into kPairs = kHasBf16Pairs ? Into::kBf16Pairs : Into::kFloats;
  const bool in_pairs = multiplies_pairs(task, task.v_type);
  if (holds_codes(task.v_type)) {
    softmax_into_weights(task, tile, panel);
  } else if (task.v_type == KvType::kFp8 && (in_pairs || !tile.packs_v)) {
    in_pairs ? softmax<kPairs, true>(task, tile, panel)
             : softmax<Into::kFloats, true>(task, tile, panel);
  } else {
    in_pairs ? softmax<kPairs>(task, tile, panel) : softmax<Into::kFloats>(task, tile, panel);
  }
}

void attend_panel(const AttentionTask& task, const Tile& tile, const Panel& panel) {
  score_panel(task, tile, panel);
  hide_scores(task, tile, panel);
  into_left_side(task, tile, panel);
  add_panel(task, tile, panel);
}

}  // namespace

std::size_t attend_scratch_bytes(std::int64_t head_dim) {
  return static_cast<std::size_t>(tile_floats(head_dim)) * sizeof(float);
}

void attend(const AttentionTask& task) {
  const FlushDenormals flush;
  Tile tile = divide_scratch(task);
  load_states(task, tile);
  for (std::int64_t r = 0; r < tile.n_rows; ++r) load_query(task, tile, r, query_of(task, r));
  ReadAhead ahead = blocks_of(task);
  for_each_panel(task, tile, [&](Panel& panel) {
    panel.ahead = asks_ahead(tile) ? &ahead : nullptr;
    if (panel.ahead != nullptr) begin_asking(task, panel, ahead);
    attend_panel(task, tile, panel);
  });
  if (holds_codes(task.v_type)) add_minima(task, tile);
  store_tile(task, tile);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
