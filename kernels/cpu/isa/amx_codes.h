// Codes of a panel's keys and values as pairs of bf16, which hold them exactly, in the order that
// AMX multiplies: every group of rows then meets them as it meets bf16 caches.
//
// They are taken from the middle of their range, so that minima become values half way: about zero
// as a rule, where else the rounding of probabilities to bf16 would show in differences of large
// sums.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/attention_tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr float middle_code(KvType type) {
  return type == KvType::kInt8 ? 128.0F : type == KvType::kInt4 ? 8.0F : 0.0F;
}

// Four codes of 8 bits a word -> two words of pairs: the first two codes, the last two.
template <KvType kType>
LONGHAUL_INLINE void store_code_pairs(Words codes, float* first, float* last) {
  const auto bits = [](Words code) {  // of the code as a float; the lower half is zero
    return reinterpret_cast<Words>(__builtin_convertvector(reinterpret_cast<Ints>(code), Vec) -
                                   middle_code(kType));
  };
  const Words first_pair = (bits(codes & 0xffU) >> 16) | bits((codes >> 8) & 0xffU);
  const Words last_pair = (bits((codes >> 16) & 0xffU) >> 16) | bits(codes >> 24);
  store(first, reinterpret_cast<Vec>(first_pair));
  store(last, reinterpret_cast<Vec>(last_pair));
}

// n_rows rows of words along the sum, of 4 or 8 codes each -> rows of pairs; n_columns is a
// multiple of 16.
template <KvType kType>
void unpack_codes(const float* words, std::int64_t stride, std::int64_t n_rows,
                  std::int64_t n_columns, float* out) {
  constexpr std::int64_t kPairs = kType == KvType::kInt8 ? 2 : 4;
  for (std::int64_t row = 0; row < n_rows; ++row, words += stride, out += kPairs * n_columns) {
    for (std::int64_t i = 0; i < n_columns; i += kWidth) {
      const Words x = load_words(words + i);
      if constexpr (kType == KvType::kInt8) {
        store_code_pairs<kType>(x, out + i, out + n_columns + i);
      } else {
        constexpr std::uint32_t kLower = 0x0f0f0f0fU;
        store_code_pairs<kType>(x & kLower, out + i, out + n_columns + i);
        store_code_pairs<kType>((x >> 4) & kLower, out + 2 * n_columns + i,
                                out + 3 * n_columns + i);
      }
    }
  }
}

// Words of a run's K, and of its V, as pairs.
std::int64_t run_pairs(const AttentionTask& task) { return kMostRunKeys / 2 * task.head_dim; }

// A run's K as [head_dim / 2, kMostRunKeys] words.
void unpack_keys(const AttentionTask& task, const Run& run, float* out) {
  if (task.k_type == KvType::kInt8) {
    unpack_codes<KvType::kInt8>(run.k, task.block_size, task.head_dim / 4, kMostRunKeys, out);
  } else {
    unpack_codes<KvType::kInt4>(run.k, task.block_size, task.head_dim / 8, kMostRunKeys, out);
  }
}

// A run's V as [kMostRunKeys / 2, head_dim] words.
void unpack_values(const AttentionTask& task, const Run& run, float* out) {
  if (task.v_type == KvType::kInt8) {
    unpack_codes<KvType::kInt8>(run.v, task.head_dim, kMostRunKeys / 4, task.head_dim, out);
  } else {
    unpack_codes<KvType::kInt4>(run.v, task.head_dim, kMostRunKeys / 8, task.head_dim, out);
  }
}

// The panel with its codes unpacked into `out`, which holds 2 * kMostRuns * run_pairs words.
Panel unpacked(const AttentionTask& task, const Panel& panel, float* out) {
  Panel pairs = panel;
  for (std::int64_t i = 0; i < panel.n_runs; ++i) {
    if (holds_codes(task.k_type)) {
      unpack_keys(task, panel.runs[i], out);
      pairs.runs[i].k = out;
      out += run_pairs(task);
    }
    if (holds_codes(task.v_type)) {
      unpack_values(task, panel.runs[i], out);
      pairs.runs[i].v = out;
      out += run_pairs(task);
    }
  }
  return pairs;
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
