// The softmax of a group of rows whose scores AMX computes, 32 keys at a time.
//
// A row's probabilities are held against a reference, which begins as the first keys' largest score
// and is raised only when a later one exceeds it by so much that probabilities would grow large
// (FlashAttention-4's conditional rescaling): hardly ever, so no pass looks for maxima first. All
// of a group's rows are then exponentiated again, but only those raised whose own probabilities are
// too large, and hidden keys are told apart after their scores are scaled, so that a row has the
// same bits beside any others (kernels/sum_order.h).
//
// Quantised keys and values: a score is a product with codes, times the key's scale, plus its
// middle (kernels/cpu/isa/amx_codes.h) times the sum of the query; a probability becomes the weight
// of the value's codes, and what the values' middles come to is added up beside the probabilities.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/amx_codes.h"
#include "kernels/cpu/isa/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kGroupRows = 2 * kAmxRows;
constexpr std::int64_t kGroupKeys = 2 * kAmxColumns;
static_assert(kGroupKeys == kMostRunKeys && kGroupKeys == kAmxPairs);

// Two probabilities together may come to so much.
constexpr float kMostProbability = 0x1p40F;
// The reference, times log2 e, of rows that have seen no key: any score exceeds it.
constexpr float kNoReference = -1e30F;
// Of rows that do not exist: no score exceeds it.
constexpr float kHighReference = 1e30F;

// What a row has added up, in vectors: probabilities, and what the middles of values come to.
constexpr std::int64_t kRowSums = 2 * kWidth;

struct GroupScores {
  float* scores;               // [kGroupRows, kGroupKeys]
  std::uint16_t* probability;  // [kGroupRows, kGroupKeys] bf16
  const float* reference;      // [kGroupRows] times log2 e
  const float* q_sums;         // [kGroupRows] of quantised keys
  float* sums;                 // [kGroupRows, kRowSums] before these keys
  float* new_sums;             // likewise with them
  float binary_scale;          // of scores, times log2 e
  const Run* run;
  KvType k_type;
  KvType v_type;
};

// Which side holds codes whose scales are still to be applied, and whether keys are hidden from
// rows: their scores are -infinity.
template <bool kKeys, bool kValues, bool kMasked>
struct RunOf {
  static constexpr bool kKeyCodes = kKeys;
  static constexpr bool kValueCodes = kValues;
  static constexpr bool kHidden = kMasked;
  using Masked = RunOf<kKeys, kValues, true>;
};

// What the middle codes stand for.
LONGHAUL_INLINE Vec middle(const std::uint16_t* minima, Vec scale, KvType type) {
  return load_halves(minima) + scale * middle_code(type);
}

// What turns products with a run's codes into exponents, and probabilities into weights of codes.
struct RunScales {
  Vec k_scale[2];
  Vec k_middle[2];
  Vec v_scale[2];
  Vec v_middle[2];
};

template <typename Of>
LONGHAUL_INLINE RunScales scales_of(const GroupScores& g) {
  const Vec scale = broadcast(g.binary_scale);
  RunScales out;
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    out.k_scale[v] = scale;
    if constexpr (Of::kKeyCodes) {
      const Vec k_scale = load_halves(g.run->k_scales + v * kWidth);
      out.k_middle[v] = middle(g.run->k_minima + v * kWidth, k_scale, g.k_type) * scale;
      out.k_scale[v] = k_scale * scale;
    }
    if constexpr (Of::kValueCodes) {
      out.v_scale[v] = load_halves(g.run->v_scales + v * kWidth);
      out.v_middle[v] = middle(g.run->v_minima + v * kWidth, out.v_scale[v], g.v_type);
    }
  }
  return out;
}

// Scores of half a run, less the reference, both times log2 e.
template <typename Of>
LONGHAUL_INLINE Vec exponents(const GroupScores& g, const RunScales& scales, std::int64_t row,
                              int half, Vec reference) {
  if constexpr (Of::kKeyCodes) reference -= scales.k_middle[half] * broadcast(g.q_sums[row]);
  const Vec score = load(g.scores + row * kGroupKeys + half * kWidth);
  const Vec x = score * scales.k_scale[half] - reference;
  if constexpr (!Of::kKeyCodes || !Of::kHidden) return x;
  return score == -kInfinity ? score : x;  // whatever its scale is
}

// Sums of two probabilities.
template <typename Of>
LONGHAUL_INLINE Vec exponentiate_row(const GroupScores& g, const RunScales& scales,
                                     std::int64_t row) {
  const Vec reference = broadcast(g.reference[row]);
  Vec p[2];
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) p[v] = exp2_below<3>(exponents<Of>(g, scales, row, v, reference));
  const Vec both = p[0] + p[1];
  const float* sums = g.sums + row * kRowSums;
  float* new_sums = g.new_sums + row * kRowSums;
  store(new_sums, load(sums) + both);
  if constexpr (Of::kValueCodes) {
    store(new_sums + kWidth,
          load(sums + kWidth) + p[0] * scales.v_middle[0] + p[1] * scales.v_middle[1]);
    p[0] *= scales.v_scale[0];
    p[1] *= scales.v_scale[1];
  }
  const __m512bh pairs = _mm512_cvtne2ps_pbh(p[1], p[0]);
  __builtin_memcpy(g.probability + row * kGroupKeys, &pairs, sizeof pairs);
  return both;
}

// Rows [begin, end); the largest sum of two probabilities is added to `most`.
template <typename Of>
LONGHAUL_INLINE void exponentiate_rows(const GroupScores& g, std::int64_t begin, std::int64_t end,
                                       Vec& most) {
  const RunScales scales = scales_of<Of>(g);
  for (std::int64_t r = begin; r < end; ++r) most = max(exponentiate_row<Of>(g, scales, r), most);
}

LONGHAUL_INLINE bool is_too_large(Vec most) { return max_of(most) > kMostProbability; }

// The row's reference becomes its largest score; what it has added up so far shrinks accordingly.
template <typename Of>
void raise_reference(const AttentionTask& task, const Tile& group, const GroupScores& g,
                     const RunScales& scales, std::int64_t row) {
  const Vec first = exponents<Of>(g, scales, row, 0, Vec{});
  const Vec last = exponents<Of>(g, scales, row, 1, Vec{});
  group.m[row] = max_of(max(first, last)) / kLog2E;
  const float reference = group.m[row] * kLog2E;
  const Vec factor = exp2_below<5>(broadcast(group.reference[row] - reference));
  group.reference[row] = reference;
  group.l[row] *= factor[0];
  float* sums = g.sums + row * kRowSums;
  for (int i = 0; i < kRowSums; i += kWidth) store(sums + i, load(sums + i) * factor);
  float* o = group.o + row * group.o_stride;
  for (std::int64_t d = 0; d < task.head_dim; d += kWidth) store(o + d, load(o + d) * factor);
}

// All rows again; those that are too large, against their largest scores.
template <typename Of>
void exponentiate_and_raise(const AttentionTask& task, const Tile& group, const GroupScores& g) {
  const RunScales scales = scales_of<Of>(g);
  for (std::int64_t r = 0; r < kGroupRows; ++r) {
    if (!is_too_large(exponentiate_row<Of>(g, scales, r))) continue;
    raise_reference<Of>(task, group, g, scales, r);
    exponentiate_row<Of>(g, scales, r);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
