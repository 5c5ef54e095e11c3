#include "kernels/cpu/isa/amx_linear.h"

#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/pack_columns.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

static_assert(kAmxStep == kAmxPairs && kAmxLinearUnit == kAmxRows && kAmxLinearUnit == kAmxColumns);

constexpr std::int64_t kTileBytes = kAmxRows * kAmxRowBytes;
constexpr std::int64_t kTileFloats = kAmxRows * kAmxColumns;
constexpr std::int64_t kPairFloats = 4 * kTileFloats;  // sums of two tiles of x, a panel
constexpr std::int64_t kPanelOutputs = 2 * kAmxLinearUnit;
// Of weights in the first cache: a line more than a chunk, so that rows begin in different sets.
constexpr std::int64_t kPanelStride = (kAmxChunkSteps + 1) * kAmxRowBytes;
constexpr std::int64_t kPanelBytes = kPanelOutputs * kPanelStride;

// n elements of x, at most a step, as words of pairs; zeros beyond.
LONGHAUL_INLINE Vec pairs_of(const float* x, std::int64_t n) {
  const Vec low = n >= kWidth ? load(x) : load_first(x, n);
  const Vec high = n >= 2 * kWidth ? load(x + kWidth)
                   : n > kWidth    ? load_first(x + kWidth, n - kWidth)
                                   : Vec{};
  return reinterpret_cast<Vec>(_mm512_cvtne2ps_pbh(high, low));
}

// Elements [begin, begin + n_steps * kAmxStep) of the weights of some outputs, zeros beyond n_in:
// what lies there belongs to others and may be NaN.
void copy_weights(const AmxLinearTask& t, std::int64_t output, std::int64_t n_outputs,
                  std::int64_t begin, std::int64_t n_steps, std::byte* to, std::int64_t stride) {
  const std::uint16_t* from = t.weight + output * t.weight_stride + begin;
  const std::int64_t whole = smaller((t.n_in - begin) / kAmxStep, n_steps);
  const std::int64_t rest = t.n_in - begin - whole * kAmxStep;
  for (std::int64_t o = 0; o < n_outputs; ++o, from += t.weight_stride, to += stride) {
    for (std::int64_t i = 0; i < whole; ++i) {
      store(to + i * kAmxRowBytes, load(from + i * kAmxStep));
    }
    if (whole == n_steps) continue;
    Vec last{};
    __builtin_memcpy(&last, from + whole * kAmxStep, static_cast<std::size_t>(rest) * 2);
    store(to + whole * kAmxRowBytes, last);
  }
}

// Sums of kAmxLinearUnit outputs (as rows) and rows of x (as columns) -> out.
void write_tile(const AmxLinearTask& t, const float* sums, std::int64_t output, std::int64_t row) {
  Vec square[kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) square[i] = load(sums + i * kWidth);
  transpose<kWidth / 2>(square);
  const std::int64_t n_outputs = smaller(kAmxLinearUnit, t.output_end - output);
  const std::int64_t n_rows = smaller(kAmxLinearUnit, t.row_end - row);
  const Vec bias = t.bias != nullptr ? load_first(t.bias + output, n_outputs) : Vec{};
  float* out = t.out + row * t.out_stride + output;
  for (std::int64_t r = 0; r < n_rows; ++r, out += t.out_stride) {
    Vec v = square[r];
    if (t.bias != nullptr) v += bias;
    if (t.accumulate) v += load_first(out, n_outputs);
    store_first(out, v, n_outputs);
  }
}

// Some steps of the sum, with x of the first row of the task.
struct Chunk {
  std::int64_t n_steps;
  const std::byte* x;
};

// 32 outputs times kTiles * 16 rows of x. Loads of x pass the first cache by, where the weights
// are.
template <bool kIsFirst, int kTiles>
LONGHAUL_INLINE void multiply(const std::byte* weights, const Chunk& chunk, const std::byte* x,
                              float* sums) {
  constexpr std::int64_t kSumLines = kPairFloats * 4 / 64 / kAmxChunkSteps;  // a step
  const auto* next_sums = reinterpret_cast<const std::byte*>(sums + kPairFloats);
  if constexpr (kIsFirst) {
    amx_clear_sums();
  } else {
    _tile_loadd(0, sums, kAmxRowBytes);
    _tile_loadd(2, sums + 2 * kTileFloats, kAmxRowBytes);
    if constexpr (kTiles == 2) {
      _tile_loadd(1, sums + kTileFloats, kAmxRowBytes);
      _tile_loadd(3, sums + 3 * kTileFloats, kAmxRowBytes);
    }
  }
  const std::byte* other_x = x + chunk.n_steps * kTileBytes;
  for (std::int64_t i = 0; i < chunk.n_steps; ++i) {
#pragma GCC unroll 8
    for (int line = 0; line < kSumLines; ++line) {  // of the next pair, into the first cache
      __builtin_prefetch(next_sums + line * 64, /*rw=*/0, /*locality=*/3);
    }
    next_sums += kSumLines * 64;
    _tile_stream_loadd(6, x, kAmxRowBytes);
    _tile_loadd(4, weights, kPanelStride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTiles == 2) {
      _tile_stream_loadd(7, other_x, kAmxRowBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_loadd(5, weights + kAmxRows * kPanelStride, kPanelStride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTiles == 2) _tile_dpbf16ps(3, 5, 7);
    weights += kAmxRowBytes;
    x += kTileBytes;
    other_x += kTileBytes;
  }
  _tile_stored(0, sums, kAmxRowBytes);
  _tile_stored(2, sums + 2 * kTileFloats, kAmxRowBytes);
  if constexpr (kTiles == 2) {
    _tile_stored(1, sums + kTileFloats, kAmxRowBytes);
    _tile_stored(3, sums + 3 * kTileFloats, kAmxRowBytes);
  }
}

// A chunk's products of all rows with 32 outputs; sums lie by pairs of tiles of x.
template <bool kIsFirst>
void multiply_panel(const std::byte* weights, const Chunk& chunk, std::int64_t n_tiles,
                    float* sums) {
  for (std::int64_t tile = 0; tile < n_tiles; tile += 2, sums += kPairFloats) {
    const std::byte* x = chunk.x + tile * chunk.n_steps * kTileBytes;
    if (tile + 1 < n_tiles) {
      multiply<kIsFirst, 2>(weights, chunk, x, sums);
    } else {
      multiply<kIsFirst, 1>(weights, chunk, x, sums);
    }
  }
}

// At most kAmxBlockOutputs outputs from `output` on.
void multiply_block(const AmxLinearTask& t, std::int64_t output, std::int64_t n_outputs,
                    std::byte* panel, float* sums) {
  const std::int64_t n_steps = quotient_up(t.n_in, kAmxStep);
  const std::int64_t x_tiles = quotient_up(t.n_rows, kAmxLinearUnit);  // in a chunk of x
  const std::int64_t n_tiles = quotient_up(t.row_end - t.row_begin, kAmxLinearUnit);
  const std::int64_t panel_sums = quotient_up(n_tiles, 2) * kPairFloats;
  const auto chunk_at = [&](std::int64_t begin) {
    const std::int64_t n = smaller(kAmxChunkSteps, n_steps - begin);
    return Chunk{n, reinterpret_cast<const std::byte*>(t.x) +
                        (begin * x_tiles + t.row_begin / kAmxLinearUnit * n) * kTileBytes};
  };
  for (std::int64_t begin = 0; begin < n_steps; begin += kAmxChunkSteps) {
    const Chunk chunk = chunk_at(begin);
    for (std::int64_t o = 0; o < n_outputs; o += kPanelOutputs) {
      const std::int64_t n = smaller(kPanelOutputs, n_outputs - o);
      if (n < kPanelOutputs) __builtin_memset(panel, 0, kPanelBytes);
      copy_weights(t, output + o, n, begin * kAmxStep, chunk.n_steps, panel, kPanelStride);
      finish_stores();
      float* of_panel = sums + o / kPanelOutputs * panel_sums;
      if (begin == 0) {
        multiply_panel<true>(panel, chunk, n_tiles, of_panel);
      } else {
        multiply_panel<false>(panel, chunk, n_tiles, of_panel);
      }
    }
  }
  finish_stores();
  for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
    for (std::int64_t o = 0; o < n_outputs; o += kAmxLinearUnit) {
      const float* pair = sums + o / kPanelOutputs * panel_sums + tile / 2 * kPairFloats;
      write_tile(t, pair + (o / kAmxLinearUnit % 2 * 2 + tile % 2) * kTileFloats, output + o,
                 t.row_begin + tile * kAmxLinearUnit);
    }
  }
}

// The left operand of a step: weights as they lie in memory, or a copy where a tile would reach
// beyond them.
struct Left {
  const void* at;
  std::int64_t stride;  // bytes
};

// kTiles * 16 rows of x, whose tiles lie x_stride bytes apart, with 16 outputs. Nothing is fetched
// ahead: the hardware follows 16 rows by itself, and asking for later ones slows it down.
template <int kTiles>
void multiply_few(const AmxLinearTask& t, std::int64_t output, std::int64_t row) {
  alignas(64) std::byte copy[kTileBytes];
  const std::int64_t n_steps = quotient_up(t.n_in, kAmxStep);
  const std::int64_t x_stride = n_steps * kTileBytes;
  const auto* x = reinterpret_cast<const std::byte*>(t.x) + row / kAmxLinearUnit * x_stride;
  const std::int64_t n_outputs = smaller(kAmxLinearUnit, t.output_end - output);
  const std::int64_t n_direct = n_outputs == kAmxLinearUnit ? t.n_in / kAmxStep : 0;
  if (n_outputs < kAmxLinearUnit) __builtin_memset(copy, 0, sizeof copy);
  const auto add_step = [&](const Left& left, std::int64_t i) __attribute__((always_inline)) {
    const std::byte* right = x + i * kTileBytes;
    _tile_loadd(4, left.at, left.stride);
    _tile_loadd(5, right, kAmxRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, right + x_stride, kAmxRowBytes);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(7, right + 2 * x_stride, kAmxRowBytes);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, right + 3 * x_stride, kAmxRowBytes);
      _tile_dpbf16ps(3, 4, 5);
    }
  };
  const std::uint16_t* weights = t.weight + output * t.weight_stride;
  amx_clear_sums();
  for (std::int64_t i = 0; i < n_direct; ++i) {
    add_step({weights + i * kAmxStep, t.weight_stride * 2}, i);
  }
  for (std::int64_t i = n_direct; i < n_steps; ++i) {
    copy_weights(t, output, n_outputs, i * kAmxStep, 1, copy, kAmxRowBytes);
    finish_stores();
    add_step({copy, kAmxRowBytes}, i);
    finish_stores();
  }
  alignas(64) float sums[4 * kTileFloats];
  _tile_stored(0, sums, kAmxRowBytes);
  _tile_stored(1, sums + kTileFloats, kAmxRowBytes);
  _tile_stored(2, sums + 2 * kTileFloats, kAmxRowBytes);
  _tile_stored(3, sums + 3 * kTileFloats, kAmxRowBytes);
  finish_stores();
  for (int i = 0; i < kTiles; ++i)
    write_tile(t, sums + i * kTileFloats, output, row + i * kAmxLinearUnit);
}

}  // namespace

void amx_pack_x(const AmxXTask& t) {
  const std::int64_t n_steps = quotient_up(t.n_in, kAmxStep);
  const std::int64_t n_tiles = quotient_up(t.n_rows, kAmxLinearUnit);
  for (std::int64_t row = t.row_begin; row < t.row_end; row += kAmxLinearUnit) {
    const std::int64_t n_rows = smaller(kAmxLinearUnit, t.n_rows - row);
    for (std::int64_t step = 0; step < n_steps; ++step) {
      const std::int64_t begin = step / t.chunk_steps * t.chunk_steps;
      const std::int64_t in_chunk = smaller(t.chunk_steps, n_steps - begin);
      const std::int64_t tile = begin * n_tiles + row / kAmxLinearUnit * in_chunk + step - begin;
      Vec square[kWidth] = {};
      const float* x = t.x + row * t.n_in + step * kAmxStep;
      for (std::int64_t r = 0; r < n_rows; ++r) {
        square[r] = pairs_of(x + r * t.n_in, t.n_in - step * kAmxStep);
      }
      transpose<kWidth / 2>(square);
      float* out = reinterpret_cast<float*>(t.out) + tile * kTileFloats;
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(out + i * kWidth, square[i]);
    }
  }
}

std::size_t amx_linear_scratch_bytes() {
  return static_cast<std::size_t>(kPanelBytes + kAmxTaskRows * kAmxBlockOutputs * 4);
}

void amx_linear(const AmxLinearTask& t) {
  const AmxRegisters registers;
  auto* sums = reinterpret_cast<float*>(t.scratch);
  std::byte* panel = t.scratch + kAmxTaskRows * kAmxBlockOutputs * 4;
  for (std::int64_t output = t.output_begin; output < t.output_end; output += kAmxBlockOutputs) {
    multiply_block(t, output, smaller(kAmxBlockOutputs, t.output_end - output), panel, sums);
  }
}

void amx_few_rows(const AmxLinearTask& t) {
  const AmxRegisters registers;
  for (std::int64_t output = t.output_begin; output < t.output_end; output += kAmxLinearUnit) {
    for (std::int64_t row = t.row_begin; row < t.row_end; row += 4 * kAmxLinearUnit) {
      switch (smaller(4, quotient_up(t.row_end - row, kAmxLinearUnit))) {
        case 1:
          multiply_few<1>(t, output, row);
          break;
        case 2:
          multiply_few<2>(t, output, row);
          break;
        case 3:
          multiply_few<3>(t, output, row);
          break;
        default:
          multiply_few<4>(t, output, row);
      }
    }
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
