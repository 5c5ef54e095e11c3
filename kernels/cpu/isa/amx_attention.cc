// Attention of many rows by AMX, on one thread, with caches of bf16 or of codes. Where products
// take a tenth of the time, the rest must not add up beside them (kernels/cpu/isa/attention.cc has
// the plain order):
//
//   a panel of keys meets 32 rows after the other, whose scores, probabilities and sums stay in the
//   first cache;
//   while AMX computes the scores of 32 keys, the vector units exponentiate those of the 32 before;
//   then the panel's values are added at once, so that sums come from memory once a panel.
#define LONGHAUL_AMX_RUNS  // attention_tile.h, tile_formats.h
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/amx_codes.h"
#include "kernels/cpu/isa/amx_softmax.h"
#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/attention_mask.h"
#include "kernels/cpu/isa/attention_panels.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {

std::size_t amx_attend_scratch_bytes(std::int64_t head_dim);

namespace {

constexpr std::int64_t kGroups = kAttentionTileRows / kGroupRows;
constexpr std::int64_t kScoreFloats = kGroupRows * kGroupKeys;
constexpr std::int64_t kProbabilityBytes = kGroupRows * kAmxRowBytes;  // of a run
constexpr std::int64_t kSumFloats = kGroupRows * kRowSums;
static_assert(kAttentionTileRows % kGroupRows == 0);

// What all groups of a tile share, and each one's sums.
struct Workspace {
  float* scores;  // of a run
  std::byte* probabilities;
  float* sums[kGroups];
  float* spare_sums;
  float* spare_scores;
  float* unpacked;  // of a panel's codes
};

std::int64_t unpacked_floats(std::int64_t head_dim) { return kMostRuns * kMostRunKeys * head_dim; }

Workspace divide(const AttentionTask& task, const Tile& tile) {
  static_assert(kRows * kScoreStride >=
                2 * kScoreFloats + kMostRuns * kProbabilityBytes / 4 + (kGroups + 1) * kSumFloats);
  Workspace out;
  float* next = tile.scores;
  out.scores = next;
  next += kScoreFloats;
  out.probabilities = reinterpret_cast<std::byte*>(next);
  next += kMostRuns * kProbabilityBytes / 4;
  for (float*& sums : out.sums) sums = next, next += kSumFloats;
  out.spare_sums = next;
  out.spare_scores = next + kSumFloats;
  const std::size_t bytes = amx_attend_scratch_bytes(task.head_dim);
  out.unpacked = reinterpret_cast<float*>(task.scratch + bytes) - unpacked_floats(task.head_dim);
  return out;
}

// Words of a row of queries; here they lie without gaps.
std::int64_t q_words(const AttentionTask& task) {
  return holds_codes(task.k_type) ? round_up(task.head_dim, 16) / 2 : task.head_dim;
}

// Rows from `begin` on, at most kGroupRows.
Tile group_of(const AttentionTask& task, const Tile& tile, std::int64_t begin) {
  Tile group = tile;
  group.n_rows = smaller(kGroupRows, tile.n_rows - begin);
  group.first_row = begin;
  group.q += begin * q_words(task);
  group.o += begin * tile.o_stride;
  group.m += begin;
  group.l += begin;
  group.reference += begin;
  group.q_sums += begin;
  group.position += begin;
  group.first_position = group.position[0];
  group.last_position = group.position[group.n_rows - 1];
  return group;
}

// The runs of a panel that the group's queries may see.
struct GroupRuns {
  Run runs[kMostRuns];
  std::int64_t n = 0;
};
GroupRuns visible_runs(const AttentionTask& task, const Tile& group, const Panel& panel) {
  GroupRuns out;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    Run run = panel.runs[i];
    if (run.n_tokens <= 0 || run.first_position > group.last_position) continue;
    const std::int64_t last = run.first_position + run.n_tokens - 1;
    if (run.first_position >= task.mask_sink && group.first_position - last >= task.mask_recent) {
      continue;
    }
    run.masked = !every_query_sees(task, group, run);
    out.runs[out.n++] = run;
  }
  return out;
}

// Products of the group's queries with the keys of a run, dims [dim, dim + kAmxPairs).
LONGHAUL_INLINE void add_scores(const AttentionTask& task, const Tile& group, const Run& run,
                                std::int64_t dim) {
  const std::int64_t stride = holds_codes(task.k_type) ? kMostRunKeys : task.block_size;
  amx_add_pairs(group.q + dim / 2, q_words(task) * 4, run.k + dim / 2 * stride, stride * 4);
}

void compute_scores(const AttentionTask& task, const Tile& group, const Run& run, float* scores) {
  amx_clear_sums();
  for (std::int64_t dim = 0; dim < task.head_dim; dim += kAmxPairs) {
    add_scores(task, group, run, dim);
  }
  amx_store_sums(scores, kGroupKeys);
}

// The scores of the next run, while the rows of these are exponentiated, whose place they take;
// whether these were too large.
template <typename Of>
bool exponentiate_meanwhile(const AttentionTask& task, const Tile& group, const Run& next,
                            const GroupScores& scores) {
  Vec most{};
  amx_clear_sums();
  const std::int64_t n_steps = task.head_dim / kAmxPairs;
  for (std::int64_t i = 0; i < n_steps; ++i) {
    add_scores(task, group, next, i * kAmxPairs);
    exponentiate_rows<Of>(scores, i * kGroupRows / n_steps, (i + 1) * kGroupRows / n_steps, most);
  }
  amx_store_sums(scores.scores, kGroupKeys);
  return is_too_large(most);
}

template <typename Of>
bool exponentiate(const GroupScores& scores) {
  Vec most{};
  exponentiate_rows<Of>(scores, 0, kGroupRows, most);
  return is_too_large(most);
}

// Adds the values of runs [begin, end), weighted by their probabilities.
void add_values(const AttentionTask& task, const Tile& group, const GroupRuns& runs,
                std::int64_t begin, std::int64_t end, const std::byte* probabilities) {
  finish_stores();
  for (std::int64_t dim = 0; dim < task.head_dim; dim += 2 * kAmxColumns) {
    amx_load_sums(group.o + dim, group.o_stride);
    for (std::int64_t i = begin; i < end; ++i) {
      amx_add_pairs(probabilities + i * kProbabilityBytes, kAmxRowBytes, runs.runs[i].v + dim,
                    task.head_dim * 4);
    }
    amx_store_sums(group.o + dim, group.o_stride);
  }
  finish_stores();
}

void mask_run(const AttentionTask& task, const Tile& group, const Run& run, float* scores) {
  finish_stores();
  for (std::int64_t r = 0; run.masked && r < group.n_rows; ++r) {
    hide(task, group, run, r, scores + r * kGroupKeys);
  }
}

// Exponentiates the scores of run i while those of the next one are computed, then again if they
// were too large, for which values of runs before this one, from n_added on, are added first.
template <typename Of>
void exponentiate_run(const AttentionTask& task, const Tile& group, const GroupRuns& runs,
                      std::int64_t i, GroupScores scores, const Workspace& space,
                      std::int64_t& n_added) {
  const bool too_large = i + 1 == runs.n
                             ? exponentiate<Of>(scores)
                             : exponentiate_meanwhile<Of>(task, group, runs.runs[i + 1], scores);
  if (!too_large) return;
  add_values(task, group, runs, n_added, i, space.probabilities);
  n_added = i;
  scores.scores = space.spare_scores;
  compute_scores(task, group, *scores.run, scores.scores);
  mask_run(task, group, *scores.run, scores.scores);
  exponentiate_and_raise<Of>(task, group, scores);
}

template <typename Of>
void attend_group(const AttentionTask& task, const Tile& group, const Panel& panel,
                  Workspace& space, float*& sums) {
  const GroupRuns runs = visible_runs(task, group, panel);
  if (runs.n == 0) return;
  std::int64_t n_added = 0;  // runs whose values are in the sums
  compute_scores(task, group, runs.runs[0], space.scores);
  for (std::int64_t i = 0; i < runs.n; ++i) {
    const GroupScores here = {.scores = space.scores,
                              .probability = reinterpret_cast<std::uint16_t*>(
                                  space.probabilities + i * kProbabilityBytes),
                              .reference = group.reference,
                              .q_sums = group.q_sums,
                              .sums = sums,
                              .new_sums = space.spare_sums,
                              .binary_scale = task.sm_scale * kLog2E,
                              .run = &runs.runs[i],
                              .k_type = task.k_type,
                              .v_type = task.v_type};
    mask_run(task, group, *here.run, here.scores);
    if (here.run->masked) {
      exponentiate_run<typename Of::Masked>(task, group, runs, i, here, space, n_added);
    } else {
      exponentiate_run<Of>(task, group, runs, i, here, space, n_added);
    }
    float* before = sums;
    sums = space.spare_sums;
    space.spare_sums = before;
  }
  add_values(task, group, runs, n_added, runs.n, space.probabilities);
}

// One part of n_parts of the next panel, into the second cache.
void prefetch_panel(const AttentionTask& task, const Panel& panel, std::int64_t part,
                    std::int64_t n_parts) {
  const std::int64_t n_blocks = larger(1, kPanelKeys / task.block_size);
  const std::int64_t end = smaller(task.n_blocks, panel.next_block + n_blocks);
  const auto n_bytes = 2 * static_cast<std::int64_t>(task.v_at);
  for (std::int64_t b = panel.next_block; b < end; ++b) {
    prefetch_part(task.blocks[b].data, n_bytes, part, n_parts);
  }
}

// Queries as pairs of bf16; beyond the last one zeros.
void load_queries(const AttentionTask& task, const Tile& tile) {
  const std::int64_t dim = task.head_dim;
  for (std::int64_t r = 0; r < round_up(tile.n_rows, kGroupRows); ++r) {
    float* to = tile.q + r * q_words(task);
    if (r >= tile.n_rows) {
      for (std::int64_t i = 0; i < dim / 2; ++i) to[i] = 0.0F;
      continue;
    }
    pack_bf16_pairs(query_of(task, r), dim, to);
    Vec sum{};
    for (std::int64_t i = 0; i < dim / 2; i += kWidth) {
      const Words pairs = load_words(to + i);
      sum += low_halves(pairs) + high_halves(pairs);
    }
    tile.q_sums[r] = sum_of(sum);
  }
}

void begin_rows(const Tile& tile, const Workspace& space) {
  for (std::int64_t r = 0; r < kRows; ++r) {
    tile.reference[r] = r >= tile.n_rows          ? kHighReference
                        : tile.m[r] == -kInfinity ? kNoReference
                                                  : tile.m[r] * kLog2E;
  }
  for (float* sums : space.sums) {
    for (std::int64_t i = 0; i < kSumFloats; i += kWidth) store(sums + i, Vec{});
  }
}

void end_rows(const AttentionTask& task, const Tile& tile, const Workspace& space) {
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    const float* sums = space.sums[r / kGroupRows] + r % kGroupRows * kRowSums;
    tile.l[r] += sum_of(load(sums));
    if (!holds_codes(task.v_type)) continue;
    const Vec middles = broadcast(sum_of(load(sums + kWidth)));
    float* o = tile.o + r * tile.o_stride;
    for (std::int64_t d = 0; d < task.head_dim; d += kWidth) store(o + d, load(o + d) + middles);
  }
}

template <typename Of>
void attend_panels(const AttentionTask& task, const Tile& tile, Workspace& space) {
  const std::int64_t n_groups = round_up(tile.n_rows, kGroupRows) / kGroupRows;
  for_each_panel(task, tile, [&](const Panel& panel) {
    const Panel pairs = unpacked(task, panel, space.unpacked);
    for (std::int64_t g = 0; g < n_groups; ++g) {
      prefetch_panel(task, panel, g, n_groups);
      attend_group<Of>(task, group_of(task, tile, g * kGroupRows), pairs, space, space.sums[g]);
    }
  });
}

void attend_all(const AttentionTask& task, const Tile& tile, Workspace& space) {
  const bool keys = holds_codes(task.k_type);
  const bool values = holds_codes(task.v_type);
  if (keys && values) return attend_panels<RunOf<true, true, false>>(task, tile, space);
  if (keys) return attend_panels<RunOf<true, false, false>>(task, tile, space);
  if (values) return attend_panels<RunOf<false, true, false>>(task, tile, space);
  attend_panels<RunOf<false, false, false>>(task, tile, space);
}

}  // namespace

std::size_t amx_attend_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t floats = tile_floats(head_dim) + unpacked_floats(head_dim);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void amx_attend(const AttentionTask& task) {
  const FlushDenormals flush;
  const AmxRegisters registers;
  Tile tile = divide_scratch(task);
  load_states(task, tile);
  load_queries(task, tile);
  Workspace space = divide(task, tile);
  begin_rows(tile, space);
  finish_stores();
  attend_all(task, tile, space);
  end_rows(task, tile, space);
  store_tile(task, tile);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
