// The softmax of a group of rows whose scores AMX computes, 32 keys at a time.
//
// A row's probabilities are held against a reference, which begins as the first keys' largest score
// and is raised only when a later one exceeds it by so much that probabilities would grow large
// (FlashAttention-4's conditional rescaling): hardly ever, so no pass looks for maxima first.
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

// Which side holds codes whose scales are still to be applied.
template <bool kKeys, bool kValues>
struct CodesOf {
  static constexpr bool kOfKeys = kKeys;
  static constexpr bool kOfValues = kValues;
};

template <typename Codes>  // scales of keys are applied already
using PlainKeys = CodesOf<false, Codes::kOfValues>;

// What the middle codes stand for.
LONGHAUL_INLINE Vec middle(const std::uint16_t* minima, Vec scale, KvType type) {
  return load_halves(minima) + scale * middle_code(type);
}

// Rows [begin, end); the largest sum of two probabilities is added to `most`.
template <typename Codes>
LONGHAUL_INLINE void exponentiate_rows(const GroupScores& g, std::int64_t begin, std::int64_t end,
                                       Vec& most) {
  const Vec scale = broadcast(g.binary_scale);
  Vec k_scale[2] = {scale, scale};
  Vec k_middle[2], v_scale[2], v_middle[2];
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    if constexpr (Codes::kOfKeys) {
      k_scale[v] = load_halves(g.run->k_scales + v * kWidth);
      k_middle[v] = middle(g.run->k_minima + v * kWidth, k_scale[v], g.k_type) * scale;
      k_scale[v] *= scale;
    }
    if constexpr (Codes::kOfValues) {
      v_scale[v] = load_halves(g.run->v_scales + v * kWidth);
      v_middle[v] = middle(g.run->v_minima + v * kWidth, v_scale[v], g.v_type);
    }
  }
  for (std::int64_t r = begin; r < end; ++r) {
    const Vec reference = broadcast(g.reference[r]);
    const float* scores = g.scores + r * kGroupKeys;
    Vec p[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      Vec from = reference;
      if constexpr (Codes::kOfKeys) from = reference - k_middle[v] * broadcast(g.q_sums[r]);
      p[v] = exp2_below<3>(load(scores + v * kWidth) * k_scale[v] - from);
    }
    const Vec both = p[0] + p[1];
    most = max(both, most);
    const float* sums = g.sums + r * kRowSums;
    float* new_sums = g.new_sums + r * kRowSums;
    store(new_sums, load(sums) + both);
    if constexpr (Codes::kOfValues) {
      store(new_sums + kWidth, load(sums + kWidth) + p[0] * v_middle[0] + p[1] * v_middle[1]);
      p[0] *= v_scale[0];
      p[1] *= v_scale[1];
    }
    const __m512bh pairs = _mm512_cvtne2ps_pbh(p[1], p[0]);
    __builtin_memcpy(g.probability + r * kGroupKeys, &pairs, sizeof pairs);
  }
}

LONGHAUL_INLINE bool is_too_large(Vec most) { return max_of(most) > kMostProbability; }

// Products with codes -> products with keys.
void apply_key_scales(const AttentionTask& task, const Tile& group, const Run& run, float* scores) {
  for (std::int64_t r = 0; r < group.n_rows; ++r, scores += kGroupKeys) {
    for (std::int64_t i = 0; i < kGroupKeys; i += kWidth) {
      const Vec scale = load_halves(run.k_scales + i);
      const Vec half_way = middle(run.k_minima + i, scale, task.k_type);
      store(scores + i, load(scores + i) * scale + half_way * broadcast(group.q_sums[r]));
    }
  }
}

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
    float* sums = scores.sums + r * kRowSums;
    for (int i = 0; i < kRowSums; i += kWidth) store(sums + i, load(sums + i) * factor);
    float* o = group.o + r * group.o_stride;
    for (std::int64_t d = 0; d < task.head_dim; d += kWidth) store(o + d, load(o + d) * factor);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
