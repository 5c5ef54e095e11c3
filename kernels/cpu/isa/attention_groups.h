// Codes that were quantised in groups (KIVI: keys channel by channel, values token by token) as
// floats: alone for products in place (attention_group_products.h), and with their scales and
// minima as the columns of a packed product (attention_packed.h). See kernels/kv_block.h.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

template <KvType kType>
constexpr int kBitsInGroups = kType == KvType::kKivi4   ? 4
                              : kType == KvType::kKivi2 ? 2
                                                        : 0;

static_assert(kKvGroup % kWidth == 0);  // a vector of tokens, or of dims, is of one group

// Code `kIndex` of each word, as floats.
template <int kBits, int kIndex>
LONGHAUL_INLINE Vec code_of(Words words) {
  constexpr std::uint32_t kMask = (1U << kBits) - 1;
  constexpr int kShift = 8 * (kIndex % 4) + kBits * (kIndex / 4);
  return __builtin_convertvector(reinterpret_cast<Ints>((words >> kShift) & kMask), Vec);
}

template <int kBits, int kIndex = 0, typename Store>
LONGHAUL_INLINE void for_each_code(Words words, const Store& to) {
  to(kIndex, code_of<kBits, kIndex>(words));
  if constexpr (kIndex + 1 < 32 / kBits) for_each_code<kBits, kIndex + 1>(words, to);
}

// kWidth keys of a run from `slot` of it on: [head_dim, out_stride] floats. All dims of a group of
// tokens have a scale and a minimum each.
template <int kBits>
void unpack_key_groups(const AttentionTask& task, const Run& run, std::int64_t slot,
                       std::int64_t out_stride, float* out) {
  float scales[kMostCodes];
  float minima[kMostCodes];
  const std::int64_t group = (run.first_slot + slot) / kKvGroup * task.head_dim;
  floats_of_halves(run.k_scales + group, task.head_dim, scales);
  floats_of_halves(run.k_minima + group, task.head_dim, minima);
  const float* words = run.k + slot;
  constexpr std::int64_t kLanes = 32 / kBits;
  for (std::int64_t d = 0; d < task.head_dim; d += kLanes, words += task.block_size) {
    for_each_code<kBits>(load_words(words), [&](int i, Vec codes) {
      store(out, codes * broadcast(scales[d + i]) + broadcast(minima[d + i]));
      out += out_stride;
    });
  }
}

// Dims [dim, dim + kWidth) of a run's values, zeros beyond the last dim: [n_keys, out_stride]
// floats. Returns where the next run's go. Each token has a scale and a minimum for a group of
// dims.
template <int kBits>
float* unpack_value_groups(const AttentionTask& task, const Run& run, std::int64_t dim,
                           std::int64_t out_stride, float* out) {
  if (dim >= task.head_dim) {
    for (std::int64_t j = 0; j < run.n_keys; ++j, out += out_stride) store(out, Vec{});
    return out;
  }
  float scales[kMostRunKeys];
  float minima[kMostRunKeys];
  const std::int64_t group = dim / kKvGroup * task.block_size;
  floats_of_halves(run.v_scales + group, run.n_keys, scales);
  floats_of_halves(run.v_minima + group, run.n_keys, minima);
  const float* words = run.v + dim;
  constexpr std::int64_t kLanes = 32 / kBits;
  for (std::int64_t j = 0; j < run.n_keys; j += kLanes, words += task.head_dim) {
    for_each_code<kBits>(load_words(words), [&](int i, Vec codes) {
      store(out, codes * broadcast(scales[j + i]) + broadcast(minima[j + i]));
      out += out_stride;
    });
  }
  return out;
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
