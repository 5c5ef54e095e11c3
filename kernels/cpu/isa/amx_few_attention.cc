// Attention of few rows over caches of codes by AMX, on one thread: generation, where a group of
// heads meets a long cache. kernels/cpu/isa/attention.cc has the order of steps; the products are
// those of kernels/cpu/isa/amx_few_codes.h, which take all rows at once and hardly any time, so
// that what is left is softmax, memory and taking words of codes of 4 bits apart.
#define LONGHAUL_AMX_RUNS  // attention_tile.h, tile_formats.h
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/amx_few_codes.h"
#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/attention_asking.h"
#include "kernels/cpu/isa/attention_panels.h"
#include "kernels/cpu/isa/attention_queries.h"
#include "kernels/cpu/isa/attention_softmax.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/attention_weights.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {

std::size_t amx_attend_few_scratch_bytes(std::int64_t head_dim) {
  return static_cast<std::size_t>(tile_floats(head_dim)) * sizeof(float) + kCodeSpaceBytes;
}

void amx_attend_few(const AttentionTask& task) {
  const FlushDenormals flush;
  const AmxRegisters registers(
      {.n_rows = 2 * task.n_tokens * task.n_heads, .right_rows = kByteRows});
  Tile tile = divide_scratch(task);
  const CodeSpace space = code_space(
      task.scratch + static_cast<std::size_t>(tile_floats(task.head_dim)) * sizeof(float));
  load_states(task, tile);
  for (std::int64_t r = 0; r < tile.n_rows; ++r) load_query(task, tile, r, query_of(task, r));
  split_rows(tile, tile.q, task.head_dim, space.queries);
  ReadAhead ahead = blocks_of(task);
  for_each_panel(task, tile, [&](Panel& panel) {
    panel.ahead = &ahead;
    begin_asking(task, panel, ahead);
    score_codes(task, tile, panel, space);
    hide_scores(task, tile, panel);
    softmax_into_weights(task, tile, panel);
    split_rows(tile, tile.scores, panel.n_keys, space.weights);
    add_code_values(task, tile, panel, space);
  });
  add_minima(task, tile);
  store_tile(task, tile);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
