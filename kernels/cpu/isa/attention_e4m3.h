// Keys and values of fp8 (E4M3, a scale for each token) as floats, the columns of a packed product.
// See kernels/kv_block.h and kernels/cpu/isa/attention_packed.h.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/e4m3.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kE4m3Lanes = 4;  // codes of a word

// kWidth keys of a run from `slot` of it on: [head_dim, out_stride] floats.
void widen_e4m3_keys(const AttentionTask& task, const Run& run, std::int64_t slot,
                     std::int64_t out_stride, float* out) {
  const Vec scales = load_halves(run.k_scales + slot);
  const float* words = run.k + slot;
  for (std::int64_t d = 0; d < task.head_dim; d += kE4m3Lanes, words += task.block_size) {
    const Words codes = load_words(words);
    for_each_quarter([&](auto byte) {
      store(out + byte.value * out_stride, widen_e4m3_byte<byte.value>(codes) * scales);
    });
    out += kE4m3Lanes * out_stride;
  }
}

// Dims [dim, dim + kWidth) of a run's values, zeros beyond the last dim: [n_keys, out_stride]
// floats. Returns where the next run's go.
float* widen_e4m3_values(const AttentionTask& task, const Run& run, std::int64_t dim,
                         std::int64_t out_stride, float* out) {
  float scales[kMostRunKeys];
  for (std::int64_t j = 0; j < run.n_keys; j += kWidth)
    store(scales + j, load_halves(run.v_scales + j));
  const std::int64_t n_left = task.head_dim - dim;
  const float* words = run.v + dim;
  for (std::int64_t j = 0; j < run.n_keys; j += kE4m3Lanes, words += task.head_dim) {
    const Vec x = n_left >= kWidth ? load(words) : n_left > 0 ? load_first(words, n_left) : Vec{};
    const Words codes = reinterpret_cast<Words>(x);
    for_each_quarter([&](auto byte) {
      store(out + byte.value * out_stride,
            widen_e4m3_byte<byte.value>(codes) * broadcast(scales[j + byte.value]));
    });
    out += kE4m3Lanes * out_stride;
  }
  return out;
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
