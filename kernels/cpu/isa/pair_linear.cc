#include "kernels/cpu/isa/pair_linear.h"

#include "kernels/cpu/isa/pack_columns.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kColumns = kTileVectors * kWidth;  // of a tile
constexpr std::int64_t kLine = 32;                        // elements of a cache line

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Elements [begin, begin + n) of the weights of some outputs.
struct Chunk {
  std::int64_t output;
  std::int64_t n_outputs;
  std::int64_t begin;
  std::int64_t n;
};

Chunk chunk_at(const PairLinearTask& t, std::int64_t output, std::int64_t begin) {
  return {output, smaller(kPairOutputs, t.output_end - output), begin,
          smaller(kPairChunk, t.n_in - begin)};
}

Chunk next_of(const PairLinearTask& t, const Chunk& chunk) {
  const std::int64_t begin = chunk.begin + kPairChunk;
  return begin < t.n_in ? chunk_at(t, chunk.output, begin)
                        : chunk_at(t, chunk.output + kPairOutputs, 0);
}

// [group of kColumns outputs, chunk.n / 2 rounded up, kColumns] words; beyond the last output any.
void pack_weights(const PairLinearTask& t, const Chunk& chunk, float* packed) {
  for (std::int64_t o = 0; o < chunk.n_outputs; o += kColumns) {
    pack_columns<Bf16Pairs>({.rows = t.weight + (chunk.output + o) * t.weight_stride + chunk.begin,
                             .row_stride = t.weight_stride,
                             .n_rows = smaller(kColumns, chunk.n_outputs - o),
                             .n_elements = chunk.n},
                            kColumns, packed + o * (kPairChunk / 2));
  }
}

// Line `line` of a chunk's weights, into the second cache: rows lie apart, which the hardware's
// prefetcher does not foresee.
LONGHAUL_INLINE void prefetch_weights(const PairLinearTask& t, const Chunk& chunk,
                                      std::int64_t line) {
  constexpr std::int64_t kLines = kPairChunk / kLine;  // of a row
  if (line >= chunk.n_outputs * kLines) return;
  __builtin_prefetch(t.weight + (chunk.output + line / kLines) * t.weight_stride + chunk.begin +
                         line % kLines * kLine,
                     /*rw=*/0, /*locality=*/2);
}

struct PairTile {
  const std::uint16_t* x;  // rows of a chunk, kPairChunk apart
  const float* weights;    // [n_words, kColumns]
  std::int64_t n_words;
  float* sums;  // rows kPairOutputs apart
};

// kRows rows x kColumns outputs. A tile reads all its rows at once, a line of each at a time, which
// looks like jumps: the rows of a later tile are fetched meanwhile.
template <bool kIsFirst, int kRows>
void multiply_pair_tile(const PairTile& t) {
  constexpr std::int64_t kAhead = 4 * kTileRows * kPairChunk;
  constexpr std::int64_t kLineWords = kLine / 2;
  Vec sums[kRows][kTileVectors] = {};
  const float* w = t.weights;
  for (std::int64_t begin = 0; begin < t.n_words; begin += kLineWords) {
    const std::uint16_t* x = t.x + 2 * begin;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(x + r * kPairChunk + kAhead, /*rw=*/0, /*locality=*/2);
    }
    for (std::int64_t n = smaller(kLineWords, t.n_words - begin); n > 0; --n, x += 2) {
      Words right[kTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) right[v] = load_words(w + v * kWidth);
      w += kColumns;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Words left = broadcast_word(x + r * kPairChunk);
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) {
          sums[r][v] = add_pair_products(sums[r][v], left, right[v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      float* to = t.sums + r * kPairOutputs + v * kWidth;
      store(to, kIsFirst ? sums[r][v] : load(to) + sums[r][v]);
    }
  }
}

template <bool kIsFirst, int kRows = kTileRows>
void multiply_pair_rows(std::int64_t n_rows, const PairTile& t) {
  if (n_rows == kRows) {
    multiply_pair_tile<kIsFirst, kRows>(t);
  } else if constexpr (kRows > 1) {
    multiply_pair_rows<kIsFirst, kRows - 1>(n_rows, t);
  }
}

// Adds a chunk to the task's sums [rows, kPairOutputs], or begins them with it, while the weights
// of the next one are fetched.
template <bool kIsFirst>
void multiply_chunk(const PairLinearTask& t, const Chunk& chunk, const Chunk& next,
                    const float* packed, float* sums) {
  const std::int64_t n_rows = t.row_end - t.row_begin;
  const std::int64_t n_tiles = (n_rows + kTileRows - 1) / kTileRows;
  const std::int64_t lines = kPairOutputs * kPairChunk / kLine / n_tiles + 1;  // for each tile
  const std::uint16_t* x = t.x + chunk.begin * t.n_rows + t.row_begin * kPairChunk;
  for (std::int64_t o = 0; o < chunk.n_outputs; o += kColumns) {
    for (std::int64_t tile = 0; tile < n_tiles; ++tile) {
      if (o == 0) {
        for (std::int64_t i = 0; i < lines; ++i) prefetch_weights(t, next, tile * lines + i);
      }
      const std::int64_t begin = tile * n_rows / n_tiles;
      const std::int64_t end = (tile + 1) * n_rows / n_tiles;
      multiply_pair_rows<kIsFirst>(end - begin, {.x = x + begin * kPairChunk,
                                                 .weights = packed + o * (kPairChunk / 2),
                                                 .n_words = (chunk.n + 1) / 2,
                                                 .sums = sums + begin * kPairOutputs + o});
    }
  }
}

void finish(const PairLinearTask& t, std::int64_t output, std::int64_t n_outputs,
            const float* sums) {
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row, sums += kPairOutputs) {
    float* out = t.out + row * t.out_stride + output;
    for (std::int64_t o = 0; o < n_outputs; o += kWidth) {
      const std::int64_t n = smaller(kWidth, n_outputs - o);
      Vec v = load(sums + o);
      if (t.bias != nullptr) v += load_first(t.bias + output + o, n);
      if (t.accumulate) v += load_first(out + o, n);
      store_first(out + o, v, n);
    }
  }
}

// What to ask memory for while these weights are multiplied; past the end it is harmless. One
// output at a time is read in the order of memory: what lies 8 KiB behind. Else the next outputs,
// into the second cache, for the hardware's prefetcher stops at page ends.
template <int kOutputs>
LONGHAUL_INLINE void prefetch_behind(const PairLinearTask& t, const std::uint16_t* weights) {
  constexpr std::int64_t kAhead = 4096;
  if constexpr (kOutputs == 1) {
    __builtin_prefetch(weights + kAhead, /*rw=*/0, /*locality=*/3);
  } else {
    __builtin_prefetch(weights + kOutputs * t.weight_stride, /*rw=*/0, /*locality=*/2);
  }
}

// kOutputs neighbouring outputs of kRows rows.
template <int kRows, int kOutputs>
void dot_rows(const PairLinearTask& t, std::int64_t row, std::int64_t output) {
  const std::uint16_t* w = t.weight + output * t.weight_stride;
  const std::uint16_t* x = t.x + row * t.chunk;
  Vec sums[kOutputs][kRows] = {};
  std::int64_t i = 0;
  for (; i + kPairUnit <= t.n_in; i += kPairUnit) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const std::uint16_t* at = w + o * t.weight_stride + i;
      prefetch_behind<kOutputs>(t, at);
      const Words words = load_words(at);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sums[o][r] = add_pair_products(sums[o][r], words, load_words(x + r * t.chunk + i));
      }
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    Words words{};
    __builtin_memcpy(&words, w + o * t.weight_stride + i, static_cast<std::size_t>(t.n_in - i) * 2);
    for (int r = 0; r < kRows; ++r) {
      if (i < t.n_in) {
        sums[o][r] = add_pair_products(sums[o][r], words, load_words(x + r * t.chunk + i));
      }
      float* out = t.out + (row + r) * t.out_stride + output + o;
      float sum = sum_of(sums[o][r]);
      if (t.bias != nullptr) sum += t.bias[output + o];
      *out = t.accumulate ? *out + sum : sum;
    }
  }
}

constexpr int kDotRows = 6;
// So many outputs share what they read of x: 24 sums in registers.
constexpr int outputs_at_once(std::int64_t n_rows) {
  if (n_rows == 1) return 1;
  return n_rows == 2 ? 8 : 4;
}
// While x stays in the first cache, nothing need be shared, and memory is read in its order, which
// is the fastest.
constexpr std::int64_t kNearElements = 16384;

template <int kRows>
void dot_outputs(const PairLinearTask& t, std::int64_t n_rows, std::int64_t row,
                 std::int64_t output, std::int64_t n_outputs) {
  if (n_rows == kRows) {
    constexpr int kOutputs = outputs_at_once(kRows);
    if (n_outputs == kOutputs) return dot_rows<kRows, kOutputs>(t, row, output);
    for (std::int64_t o = 0; o < n_outputs; ++o) dot_rows<kRows, 1>(t, row, output + o);
  } else if constexpr (kRows > 1) {
    dot_outputs<kRows - 1>(t, n_rows, row, output, n_outputs);
  }
}

}  // namespace

void pack_pair_x(const PairXTask& t) {
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    for (std::int64_t begin = 0; begin < t.n_in; begin += t.chunk) {
      const float* x = t.x + row * t.n_in + begin;
      std::uint16_t* out = t.out + begin * t.n_rows + row * t.chunk;
      const std::int64_t n = smaller(t.chunk, t.n_in - begin);
      for (std::int64_t i = 0; i < n; i += kPairUnit) {
        for (std::int64_t half = i; half < i + kPairUnit; half += kWidth)
          store_as_bf16(out + half, load_up_to(x, n, half));
      }
    }
  }
}

// For kPairOutputs outputs at a time: a chunk of their weights (64 KiB for the columns of a tile)
// stays in the caches while all rows pass, and so do their sums.
void pair_linear(const PairLinearTask& t) {
  auto* packed = reinterpret_cast<float*>(t.scratch);
  float* sums = packed + kPairOutputs * (kPairChunk / 2);
  Chunk chunk = chunk_at(t, t.output_begin, 0);
  while (chunk.n_outputs > 0) {
    const Chunk next = next_of(t, chunk);
    pack_weights(t, chunk, packed);
    if (chunk.begin == 0) {
      multiply_chunk<true>(t, chunk, next, packed, sums);
    } else {
      multiply_chunk<false>(t, chunk, next, packed, sums);
    }
    if (next.begin == 0) finish(t, chunk.output, chunk.n_outputs, sums);
    chunk = next;
  }
}

// A few outputs at a time: rows beyond the first kDotRows find their weights in the cache.
void pair_few_rows(const PairLinearTask& t) {
  const std::int64_t n_rows = t.row_end - t.row_begin;
  const std::int64_t n_parts = (n_rows + kDotRows - 1) / kDotRows;
  const std::int64_t n_at_once = n_rows * t.chunk <= kNearElements ? 1 : outputs_at_once(n_rows);
  for (std::int64_t output = t.output_begin; output < t.output_end; output += n_at_once) {
    const std::int64_t n_outputs = smaller(n_at_once, t.output_end - output);
    for (std::int64_t part = 0; part < n_parts; ++part) {
      const std::int64_t begin = t.row_begin + part * n_rows / n_parts;
      const std::int64_t end = t.row_begin + (part + 1) * n_rows / n_parts;
      dot_outputs<kDotRows>(t, end - begin, begin, output, n_outputs);
    }
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
