// The softmax of a group of rows whose scores AMX computes, 32 keys at a time.
//
// A row's probabilities are held against a reference, which begins as the first keys' largest score
// and is raised only when a later one exceeds it by so much that probabilities would grow large
// (FlashAttention-4's conditional rescaling): hardly ever, so no pass looks for maxima first.
#pragma once
#include <cstdint>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kGroupRows = 2 * kAmxRows;
constexpr std::int64_t kGroupKeys = 2 * kAmxColumns;
static_assert(kGroupKeys == kMostRunKeys && kGroupKeys == kAmxPairs);

// Two probabilities together may come to so much.
constexpr float kMostProbability = 0x1p40F;
// The reference, times log2 e, of rows that have seen no key: any score exceeds it.
constexpr float kNoReference = -1e30F;
constexpr float kLog2E = 1.44269504088896341F;

struct GroupScores {
  float* scores;               // [kGroupRows, kGroupKeys]
  std::uint16_t* probability;  // [kGroupRows, kGroupKeys] bf16
  const float* reference;      // [kGroupRows] times log2 e
  float* sums;                 // [kGroupRows, kWidth] of probabilities before these keys
  float* new_sums;             // likewise with them
  float binary_scale;          // of scores, times log2 e
};

// Rows [begin, end); the largest sum of two probabilities is added to `most`.
LONGHAUL_INLINE void exponentiate_rows(const GroupScores& g, std::int64_t begin, std::int64_t end,
                                       Vec& most) {
  const Vec scale = broadcast(g.binary_scale);
  for (std::int64_t r = begin; r < end; ++r) {
    const Vec reference = broadcast(g.reference[r]);
    const float* scores = g.scores + r * kGroupKeys;
    const Vec low = exp2_below<3>(load(scores) * scale - reference);
    const Vec high = exp2_below<3>(load(scores + kWidth) * scale - reference);
    const Vec both = low + high;
    most = max(both, most);
    store(g.new_sums + r * kWidth, load(g.sums + r * kWidth) + both);
    const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
    __builtin_memcpy(g.probability + r * kGroupKeys, &pairs, sizeof pairs);
  }
}

LONGHAUL_INLINE bool is_too_large(Vec most) { return max_of(most) > kMostProbability; }

// The references of rows whose scores exceed them become these scores' maxima; what the rows have
// added up so far shrinks accordingly.
void raise_references(const AttentionTask& task, const Tile& group, const GroupScores& scores) {
  for (std::int64_t r = 0; r < group.n_rows; ++r) {
    const float* row = scores.scores + r * kGroupKeys;
    const float largest = max_of(max(load(row), load(row + kWidth))) * task.sm_scale;
    if (!(largest > group.m[r])) continue;
    const float reference = largest * kLog2E;
    const Vec factor = exp2_below<5>(broadcast(group.reference[r] - reference));
    group.m[r] = largest;
    group.reference[r] = reference;
    group.l[r] *= factor[0];
    float* sums = scores.sums + r * kWidth;
    store(sums, load(sums) * factor);
    float* o = group.o + r * group.o_stride;
    for (std::int64_t d = 0; d < task.head_dim; d += kWidth) store(o + d, load(o + d) * factor);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
