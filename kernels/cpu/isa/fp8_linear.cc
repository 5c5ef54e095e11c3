// Matrix products with fp8 weights, on one thread. A weight is its code's value times its scale,
// rounded to a float once; sums are of floats.
#include "kernels/cpu/isa/fp8_linear.h"

#include "base/fp8_format.h"
#include "kernels/cpu/isa/e4m3.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

static_assert(kFp8Chunk % kE4m3Chunk == 0);

std::int64_t padded(std::int64_t n_in) { return round_up(n_in, kFp8Chunk); }

// Calls body(begin, end, block) for the blocks of inputs.
template <typename Body>
LONGHAUL_INLINE void for_each_block(std::int64_t n_in, std::int64_t block_in, const Body& body) {
  for (std::int64_t begin = 0, block = 0; begin < n_in; begin += block_in, ++block) {
    body(begin, n_in - begin < block_in ? n_in : begin + block_in, block);
  }
}

// kOutputs neighbouring outputs of kRows rows.
template <int kRows, int kOutputs>
void dot_fp8_rows(const Fp8LinearTask& t, std::int64_t first_row, std::int64_t first_output) {
  const std::uint8_t* codes = t.codes + first_output * t.code_stride;
  const float* rows = t.x + first_row * t.x_stride;
  const float* scales[kOutputs];
  for (int o = 0; o < kOutputs; ++o) {
    const std::int64_t block = (t.first_output + first_output + o) / t.block_out;
    scales[o] = t.scales + block * t.scale_stride;
  }
  Vec sums[kOutputs][kRows] = {};
  for_each_block(t.n_in, t.block_in, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
    float scale[kOutputs];
    for (int o = 0; o < kOutputs; ++o) scale[o] = scales[o][block] * kE4m3Unit;
    for (std::int64_t i = begin; i < end; i += kE4m3Chunk) {
      // Part by part, not output by output: sums of several outputs wait for each other less.
      Words chunk[kOutputs];
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) {
        const std::uint8_t* at = codes + o * t.code_stride + i;
        // The next outputs, into the second cache: the hardware's prefetcher stops at page ends.
        // Prefetching past the end is harmless.
        __builtin_prefetch(at + kOutputs * t.code_stride, /*rw=*/0, /*locality=*/2);
        chunk[o] = load_codes(at, end - i);
      }
      for_each_quarter([&](auto part) {
#pragma GCC unroll 4
        for (int o = 0; o < kOutputs; ++o) {
          const Vec w = widen_e4m3<part.value>(chunk[o]) * scale[o];
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            add_product(sums[o][r], w, load(rows + r * t.x_stride + i + part.value * kWidth));
          }
        }
      });
    }
  });
  for (int o = 0; o < kOutputs; ++o) {
    const std::int64_t output = first_output + o;
    for (int r = 0; r < kRows; ++r) {
      float* out = t.out + (first_row + r) * t.out_stride + output;
      float sum = sum_of(sums[o][r]);
      if (t.bias != nullptr) sum += t.bias[output];
      *out = t.accumulate ? *out + sum : sum;
    }
  }
}

// The most outputs at once: several weight streams keep memory busy, and their sums fit into
// registers.
constexpr int kFp8OutputsAtOnce = kWidth == 16 ? 4 : 2;

template <int kRows>
void dot_fp8_outputs(const Fp8LinearTask& t, std::int64_t first_row, std::int64_t begin,
                     std::int64_t end) {
  std::int64_t output = begin;
  for (; output + kFp8OutputsAtOnce <= end; output += kFp8OutputsAtOnce)
    dot_fp8_rows<kRows, kFp8OutputsAtOnce>(t, first_row, output);
  for (; output < end; ++output) dot_fp8_rows<kRows, 1>(t, first_row, output);
}

}  // namespace

void pack_fp8_x(const Fp8XTask& t) {
  const std::int64_t n_kept = t.n_in - t.n_skipped;
  const std::int64_t n_floats = padded(t.n_in);
  for (std::int64_t row = 0; row < t.n_rows; ++row) {
    const float* x = t.x + row * n_kept;
    float* out = t.out + row * n_floats;
    for (std::int64_t begin = 0; begin < n_floats; begin += kE4m3Chunk) {
      for (std::int64_t i = 0; i < kE4m3Chunk; ++i) {
        const std::int64_t input = begin + i - t.n_skipped;
        out[begin + e4m3_place(i)] = 0 <= input && input < n_kept ? x[input] : 0.0F;
      }
    }
  }
}

void widen_fp8(const Fp8WidenTask& t) {
  for_each_block(t.n_in, t.block_in, [&](std::int64_t begin, std::int64_t end, std::int64_t block) {
    for (std::int64_t i = begin; i < end; i += kE4m3Chunk) {
      const Words chunk = load_codes(t.codes + i, end - i);
      for_each_quarter([&](auto part) {
        store(t.out + i + part.value * kWidth,
              widen_e4m3<part.value>(chunk) * (t.scales[block] * kE4m3Unit));
      });
    }
  });
  const std::int64_t n_whole = round_up(t.n_in, kE4m3Chunk);
  for (std::int64_t i = n_whole; i < padded(t.n_in); ++i) t.out[i] = 0.0F;
}

// Four weight rows at a time: the second half of x's rows finds them in the cache.
void few_rows_fp8_linear(const Fp8LinearTask& t) {
  for (std::int64_t begin = t.output_begin; begin < t.output_end; begin += 4) {
    const std::int64_t end = begin + 4 < t.output_end ? begin + 4 : t.output_end;
    for (std::int64_t row = 0; row < t.n_rows; row += 4) {
      switch (t.n_rows - row) {
        case 1:
          dot_fp8_outputs<1>(t, row, begin, end);
          break;
        case 2:
          dot_fp8_outputs<2>(t, row, begin, end);
          break;
        case 3:
          dot_fp8_outputs<3>(t, row, begin, end);
          break;
        default:
          dot_fp8_outputs<4>(t, row, begin, end);
      }
    }
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
