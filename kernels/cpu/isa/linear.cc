// Matrix products with weights, on one thread: a kernel for few rows, which reads the weights once
// at the speed of memory, and a tiled one for any number of rows.
#include "kernels/cpu/isa/linear.h"

#include "kernels/cpu/isa/pack_columns.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/streams.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kChunk =
    512;  // elements of a weight row, packed at once: 128 KiB for 64 rows

constexpr int kLineVectors = 16 / kWidth;  // of 64 bytes

// How few_rows_linear multiplies one vector of weight words with kXVectors vectors of x.
struct FloatDot {
  static constexpr std::int64_t kXVectors = 1;
  static LONGHAUL_INLINE Vec add(Vec sum, Words w, const float* x) {
    return sum + reinterpret_cast<Vec>(w) * load(x);
  }
};
struct Bf16Dot {  // x: the even elements of 2 kWidth, then the odd ones
  static constexpr std::int64_t kXVectors = 2;
  static LONGHAUL_INLINE Vec add(Vec sum, Words w, const float* x) {
    return sum + low_halves(w) * load(x) + high_halves(w) * load(x + kWidth);
  }
};

void finish_output(const FewRowsLinearTask& t, std::int64_t row, std::int64_t output, Vec sums) {
  float* out = t.out + row * t.out_stride + output;
  float sum = sum_of(sums);
  if (t.bias != nullptr) sum += t.bias[output];
  *out = t.accumulate ? *out + sum : sum;
}

// Outputs whose weights are read side by side.
struct Outputs {
  std::int64_t first;
  std::int64_t n;
  std::int64_t apart;  // from each to the next
};

// kOutputs outputs of kRows rows, `apart` from each other.
template <typename Dot, int kRows, int kOutputs>
void dot_rows(const FewRowsLinearTask& t, const float* x, std::int64_t first_row,
              std::int64_t first_output, std::int64_t apart) {
  const std::int64_t bytes = t.n_in * (t.weights_are_bf16 ? 2 : 4);
  const std::int64_t step_bytes = kWidth * 4;
  const std::int64_t n_whole = bytes / step_bytes;
  const std::int64_t row_bytes = t.weight_stride * (t.weights_are_bf16 ? 2 : 4);
  const std::byte* w = static_cast<const std::byte*>(t.weight) + first_output * row_bytes;
  const std::int64_t output_bytes = apart * row_bytes;
  const std::int64_t bytes_ahead = kStreams == 1 ? kOutputs * row_bytes : kStreamBytesAhead;
  Vec sums[kOutputs][kRows] = {};
  const auto add_vector = [&](std::int64_t i) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const Words words = load_words(w + o * output_bytes + i * step_bytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sums[o][r] = Dot::add(sums[o][r], words, x + r * t.x_stride + i * kWidth * Dot::kXVectors);
      }
    }
  };
  std::int64_t i = 0;
  for (; i + kLineVectors <= n_whole; i += kLineVectors) {
    // What the same loads read next, into the second cache: the hardware's prefetcher stops at page
    // ends. Once for each line of 64 bytes. Prefetching past the end is harmless.
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      __builtin_prefetch(w + o * output_bytes + i * step_bytes + bytes_ahead, /*rw=*/0,
                         /*locality=*/2);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kLineVectors; ++v) add_vector(i + v);
  }
  for (; i < n_whole; ++i) add_vector(i);
  if (const std::int64_t rest = bytes - n_whole * step_bytes; rest > 0) {
    for (int o = 0; o < kOutputs; ++o) {
      Words words{};
      __builtin_memcpy(&words, w + o * output_bytes + n_whole * step_bytes,
                       static_cast<std::size_t>(rest));
      for (int r = 0; r < kRows; ++r) {
        sums[o][r] =
            Dot::add(sums[o][r], words, x + r * t.x_stride + n_whole * kWidth * Dot::kXVectors);
      }
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    for (int r = 0; r < kRows; ++r)
      finish_output(t, first_row + r, first_output + o * apart, sums[o][r]);
  }
}

// The most outputs at once: several rows of weights keep memory busy, and their sums fit into
// registers.
template <int kRows>
constexpr int kOutputsAtOnce = kWidth == 16 || kRows <= 2 ? 4 : 2;

template <typename Dot, int kRows>
void dot_rows_of(const FewRowsLinearTask& t, std::int64_t first_row, Outputs outputs) {
  constexpr int kOutputs = kOutputsAtOnce<kRows>;
  const float* x = t.x + first_row * t.x_stride;
  for (; outputs.n >= kOutputs; outputs.n -= kOutputs) {
    dot_rows<Dot, kRows, kOutputs>(t, x, first_row, outputs.first, outputs.apart);
    outputs.first += kOutputs * outputs.apart;
  }
  for (; outputs.n > 0; --outputs.n, outputs.first += outputs.apart)
    dot_rows<Dot, kRows, 1>(t, x, first_row, outputs.first, outputs.apart);
}

// All rows: the second half of them finds the weights in the cache.
template <typename Dot>
void dot_outputs(const FewRowsLinearTask& t, const Outputs& outputs) {
  for (std::int64_t row = 0; row < t.n_rows; row += 4) {
    switch (t.n_rows - row) {
      case 1:
        dot_rows_of<Dot, 1>(t, row, outputs);
        break;
      case 2:
        dot_rows_of<Dot, 2>(t, row, outputs);
        break;
      case 3:
        dot_rows_of<Dot, 3>(t, row, outputs);
        break;
      default:
        dot_rows_of<Dot, 4>(t, row, outputs);
    }
  }
}

// Four outputs side by side: neighbours, or one of each stream.
template <typename Dot>
void dot_all(const FewRowsLinearTask& t) {
  const std::int64_t apart = kStreams == 1 ? 1 : (t.output_end - t.output_begin) / 4;
  std::int64_t output = t.output_begin;
  for (; t.output_end - output >= 4; output += 4 * apart) {
    for (std::int64_t i = 0; i < apart; ++i)
      dot_outputs<Dot>(t, {.first = output + i, .n = 4, .apart = apart});
  }
  dot_outputs<Dot>(t, {.first = output, .n = t.output_end - output, .apart = 1});
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

template <typename Source>
void multiply_tiles(const TiledLinearTask& t) {
  auto* packed = reinterpret_cast<float*>(t.scratch);
  for (std::int64_t output = t.output_begin; output < t.output_end; output += kTiledOutputs) {
    const std::int64_t left = t.output_end - output;
    const std::int64_t n_outputs = left < kTiledOutputs ? left : kTiledOutputs;
    start_outputs(t, output, n_outputs);
    for (std::int64_t begin = 0; begin < t.n_in; begin += kChunk) {
      const std::int64_t n_steps = t.n_in - begin < kChunk ? t.n_in - begin : kChunk;
      const auto* rows = static_cast<const typename Source::Element*>(t.weight);
      pack_columns<Source>({.rows = rows + output * t.weight_stride + begin,
                            .row_stride = t.weight_stride,
                            .n_rows = n_outputs,
                            .n_elements = n_steps},
                           kTiledOutputs, packed);
      const Segment segment = {packed, n_steps};
      const Product product = {.a = t.x + begin,
                               .a_stride = t.n_in,
                               .segments = &segment,
                               .n_segments = 1,
                               .b_stride = kTiledOutputs,
                               .c = t.out + output,
                               .c_stride = t.out_stride,
                               .row_scale = nullptr,
                               .left_units = nullptr};
      multiply<FloatProduct, Start::kAdd>(t.n_rows, n_outputs, product);
    }
  }
}

struct EvenLanes {
  static constexpr int of(int lane) { return 2 * lane; }
};
struct OddLanes {
  static constexpr int of(int lane) { return 2 * lane + 1; }
};

float rounded_to_bf16(float x) {
  const std::uint16_t half = to_bf16_bits(x);
  return WidenedBf16::word(&half, 0, 1);
}

}  // namespace

std::int64_t few_rows_x_floats(std::int64_t n_in, bool weights_are_bf16) {
  return round_up(n_in, weights_are_bf16 ? 2 * kWidth : kWidth);
}

void pack_few_rows_x(const PackTask& t) {
  const std::int64_t n_floats = few_rows_x_floats(t.n_in, t.weights_are_bf16);
  for (std::int64_t row = 0; row < t.n_rows; ++row) {
    const float* x = t.x + row * t.n_in;
    float* out = t.out + row * n_floats;
    if (!t.weights_are_bf16) {
      for (std::int64_t i = 0; i < n_floats; i += kWidth) store(out + i, load_up_to(x, t.n_in, i));
      continue;
    }
    for (std::int64_t i = 0; i < n_floats; i += 2 * kWidth) {
      const Vec first = round_to_bf16(load_up_to(x, t.n_in, i));
      const Vec second = round_to_bf16(load_up_to(x, t.n_in, i + kWidth));
      store(out + i, picked<EvenLanes>(first, second));
      store(out + i + kWidth, picked<OddLanes>(first, second));
    }
  }
}

void round_x_to_bf16(const float* x, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, round_to_bf16(load(x + i)));
  for (; i < n; ++i) out[i] = rounded_to_bf16(x[i]);
}

void few_rows_linear(const FewRowsLinearTask& t) {
  if (t.weights_are_bf16) return dot_all<Bf16Dot>(t);
  dot_all<FloatDot>(t);
}

std::size_t tiled_linear_scratch_bytes() {
  return static_cast<std::size_t>(kChunk * kTiledOutputs) * sizeof(float);
}

void tiled_linear(const TiledLinearTask& t) {
  if (t.weights_are_bf16) return multiply_tiles<WidenedBf16>(t);
  multiply_tiles<Floats>(t);
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
