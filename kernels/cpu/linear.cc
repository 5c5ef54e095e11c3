// Matrix products with weights, on one thread: a kernel for few rows, which reads the weights once
// at the speed of memory, and a tiled one for any number of rows.
#include "kernels/cpu/linear.h"

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kChunkWords = 512;  // of a weight row, packed at once: 128 KiB for 64 rows

// How few_rows_linear multiplies one vector of weight words with kXVectors vectors of x.
struct FloatDot {
  static constexpr std::int64_t kLanes = 1;
  static constexpr std::int64_t kXVectors = 1;
  static LONGHAUL_INLINE Vec add(Vec sum, Words w, const float* x) {
    return sum + reinterpret_cast<Vec>(w) * load(x);
  }
};
struct WidenedBf16Dot {  // x: the even elements of 2 kWidth, then the odd ones
  static constexpr std::int64_t kLanes = 2;
  static constexpr std::int64_t kXVectors = 2;
  static LONGHAUL_INLINE Vec add(Vec sum, Words w, const float* x) {
    return sum + low_halves(w) * load(x) + high_halves(w) * load(x + kWidth);
  }
};
struct PairedBf16Dot {
  static constexpr std::int64_t kLanes = 2;
  static constexpr std::int64_t kXVectors = 1;
  static LONGHAUL_INLINE Vec add(Vec sum, Words w, const float* x) {
#if defined(__AVX512BF16__)
    return add_pair_products(sum, load_words(x), w);
#else
    return sum + reinterpret_cast<Vec>(w) * load(x);
#endif
  }
};
template <bool kPairs>
struct Bf16DotOf {
  using Type = WidenedBf16Dot;
};
template <>
struct Bf16DotOf<true> {
  using Type = PairedBf16Dot;
};
using Bf16Dot = Bf16DotOf<kMultipliesBf16>::Type;

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

const std::byte* weight_row(const void* weight, bool is_bf16, std::int64_t n_in, std::int64_t row) {
  return static_cast<const std::byte*>(weight) + row * n_in * (is_bf16 ? 2 : 4);
}

void finish_output(const FewRowsLinearTask& t, std::int64_t row, std::int64_t output, Vec sums) {
  float* out = t.out + row * t.out_stride + output;
  float sum = sum_of(sums);
  if (t.bias != nullptr) sum += t.bias[output];
  *out = t.accumulate ? *out + sum : sum;
}

// kOutputs neighbouring outputs of kRows rows.
template <typename Dot, int kRows, int kOutputs>
void dot_rows(const FewRowsLinearTask& t, const float* x, std::int64_t first_row,
              std::int64_t first_output) {
  const std::int64_t bytes = t.n_in * (t.weights_are_bf16 ? 2 : 4);
  const std::int64_t step_bytes = kWidth * 4;
  const std::int64_t n_whole = bytes / step_bytes;
  const std::byte* w = weight_row(t.weight, t.weights_are_bf16, t.n_in, first_output);
  Vec sums[kOutputs][kRows] = {};
  for (std::int64_t i = 0; i < n_whole; ++i) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const Words words = load_words(w + o * bytes + i * step_bytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sums[o][r] = Dot::add(sums[o][r], words, x + r * t.x_words + i * kWidth * Dot::kXVectors);
      }
    }
  }
  if (const std::int64_t rest = bytes - n_whole * step_bytes; rest > 0) {
    for (int o = 0; o < kOutputs; ++o) {
      Words words{};
      __builtin_memcpy(&words, w + o * bytes + n_whole * step_bytes,
                       static_cast<std::size_t>(rest));
      for (int r = 0; r < kRows; ++r) {
        sums[o][r] =
            Dot::add(sums[o][r], words, x + r * t.x_words + n_whole * kWidth * Dot::kXVectors);
      }
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    for (int r = 0; r < kRows; ++r) finish_output(t, first_row + r, first_output + o, sums[o][r]);
  }
}

// Few rows keep several weight streams going, many rows have enough sums of their own.
template <typename Dot, int kRows>
void dot_outputs(const FewRowsLinearTask& t, std::int64_t first_row) {
  constexpr int kOutputs = kRows <= 2 ? 4 : kRows == 3 ? 2 : 1;
  const float* x = t.x + first_row * t.x_words;
  std::int64_t output = t.output_begin;
  for (; output + kOutputs <= t.output_end; output += kOutputs) {
    dot_rows<Dot, kRows, kOutputs>(t, x, first_row, output);
  }
  for (; output < t.output_end; ++output) dot_rows<Dot, kRows, 1>(t, x, first_row, output);
}

template <typename Dot>
void dot_all(const FewRowsLinearTask& t) {
  // The second half of the rows finds the task's weights in the cache.
  for (std::int64_t row = 0; row < t.n_rows; row += 4) {
    switch (t.n_rows - row) {
      case 1:
        dot_outputs<Dot, 1>(t, row);
        break;
      case 2:
        dot_outputs<Dot, 2>(t, row);
        break;
      case 3:
        dot_outputs<Dot, 3>(t, row);
        break;
      default:
        dot_outputs<Dot, 4>(t, row);
    }
  }
}

// Words [begin, begin + n_words) of kTiledOutputs weight rows, as vectors of outputs: the layout of
// a K block. Outputs that do not exist and the odd element's missing neighbour are zero.
void pack_weights(const TiledLinearTask& t, std::int64_t output, std::int64_t n_outputs,
                  std::int64_t begin, std::int64_t n_words, std::uint32_t* packed) {
  const std::int64_t row_bytes = t.n_in * (t.weights_are_bf16 ? 2 : 4);
  for (std::int64_t o = 0; o < n_outputs; ++o) {
    const std::byte* row = weight_row(t.weight, t.weights_are_bf16, t.n_in, output + o);
    for (std::int64_t i = 0; i < n_words; ++i) {
      const std::int64_t at = (begin + i) * 4;
      std::uint32_t word = 0;
      if (at + 4 <= row_bytes) {
        __builtin_memcpy(&word, row + at, 4);
      } else {
        __builtin_memcpy(&word, row + at, 2);
      }
      packed[i * kTiledOutputs + o] = word;
    }
  }
}

void start_outputs(const TiledLinearTask& t, std::int64_t output, std::int64_t n_outputs) {
  for (std::int64_t row = 0; row < t.n_rows; ++row) {
    float* out = t.out + row * t.out_stride + output;
    for (std::int64_t o = 0; o < n_outputs; ++o) {
      const float before = t.accumulate ? out[o] : 0.0F;
      out[o] = t.bias != nullptr ? before + t.bias[output + o] : before;
    }
  }
}

template <typename Format>
void multiply_tiles(const TiledLinearTask& t) {
  const std::int64_t n_words = (t.n_in + Format::kLanes - 1) / Format::kLanes;
  auto* packed = reinterpret_cast<std::uint32_t*>(t.scratch);
  for (std::int64_t output = t.output_begin; output < t.output_end; output += kTiledOutputs) {
    const std::int64_t left = t.output_end - output;
    const std::int64_t n_outputs = left < kTiledOutputs ? left : kTiledOutputs;
    start_outputs(t, output, n_outputs);
    for (std::int64_t begin = 0; begin < n_words; begin += kChunkWords) {
      const std::int64_t n_steps = n_words - begin < kChunkWords ? n_words - begin : kChunkWords;
      pack_weights(t, output, n_outputs, begin, n_steps, packed);
      const Product product = {.a = t.x + begin * Format::kLeftWords,
                               .a_stride = t.x_words,
                               .b = reinterpret_cast<const float*>(packed),
                               .b_stride = kTiledOutputs,
                               .c = t.out + output,
                               .c_stride = t.out_stride,
                               .n_steps = n_steps,
                               .start = Start::kAdd,
                               .row_scale = nullptr};
      multiply<Format>(t.n_rows, n_outputs, product);
    }
  }
}

// One row of x rounded to bf16, in pairs; n_words of them.
void pack_pairs(const float* x, std::int64_t n, std::int64_t n_words, float* out) {
  for (std::int64_t i = 0; i < n_words; ++i) {
    const std::uint32_t low = 2 * i < n ? to_bf16_bits(x[2 * i]) : 0U;
    const std::uint32_t high = 2 * i + 1 < n ? to_bf16_bits(x[2 * i + 1]) : 0U;
    const std::uint32_t word = low | high << 16;
    __builtin_memcpy(out + i, &word, sizeof word);
  }
}

float rounded_to_bf16(float x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(to_bf16_bits(x)) << 16;
  float out;
  __builtin_memcpy(&out, &bits, sizeof out);
  return out;
}

}  // namespace

std::int64_t few_rows_x_words(std::int64_t n_in, bool weights_are_bf16) {
  if (!weights_are_bf16) return round_up(n_in, kWidth);
  return round_up(n_in, 2 * kWidth) / (kMultipliesBf16 ? 2 : 1);
}

std::int64_t tiled_x_words(std::int64_t n_in, bool weights_are_bf16) {
  if (!weights_are_bf16) return n_in;
  return round_up(n_in, 2) / (kMultipliesBf16 ? 2 : 1);
}

void pack_few_rows_x(const PackTask& t) {
  const std::int64_t n_words = few_rows_x_words(t.n_in, t.weights_are_bf16);
  for (std::int64_t row = 0; row < t.n_rows; ++row) {
    const float* x = t.x + row * t.n_in;
    float* out = t.out + row * n_words;
    if (t.weights_are_bf16 && kMultipliesBf16) {
      pack_pairs(x, t.n_in, n_words, out);
      continue;
    }
    for (std::int64_t i = t.n_in; i < n_words; ++i) out[i] = 0.0F;
    if (!t.weights_are_bf16) {
      __builtin_memcpy(out, x, static_cast<std::size_t>(t.n_in) * sizeof(float));
      continue;
    }
    for (std::int64_t i = 0; i < n_words; ++i) {  // even elements first, within 2 kWidth
      const std::int64_t within = i % (2 * kWidth);
      const float value = i < t.n_in ? rounded_to_bf16(x[i]) : 0.0F;
      out[i - within + within % 2 * kWidth + within / 2] = value;
    }
  }
}

void pack_tiled_x(const PackTask& t) {
  const std::int64_t n_words = tiled_x_words(t.n_in, t.weights_are_bf16);
  for (std::int64_t row = 0; row < t.n_rows; ++row) {
    const float* x = t.x + row * t.n_in;
    float* out = t.out + row * n_words;
    if (t.weights_are_bf16 && kMultipliesBf16) {
      pack_pairs(x, t.n_in, n_words, out);
      continue;
    }
    for (std::int64_t i = 0; i < n_words; ++i) {
      const float value = i < t.n_in ? x[i] : 0.0F;
      out[i] = t.weights_are_bf16 ? rounded_to_bf16(value) : value;
    }
  }
}

void few_rows_linear(const FewRowsLinearTask& t) {
  if (t.weights_are_bf16) return dot_all<Bf16Dot>(t);
  dot_all<FloatDot>(t);
}

std::size_t tiled_linear_scratch_bytes() {
  return static_cast<std::size_t>(kChunkWords * kTiledOutputs) * 4;
}

void tiled_linear(const TiledLinearTask& t) {
  if (t.weights_are_bf16) return multiply_tiles<Bf16Product>(t);
  multiply_tiles<FloatProduct>(t);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
