#include "kernels/cpu/isa/pair_linear.h"

#include "kernels/cpu/isa/pack_columns.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kColumns = kTileVectors * kWidth;  // of a tile
constexpr std::int64_t kLine = 32;                        // elements of a cache line

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
  const std::int64_t n_tiles = quotient_up(n_rows, kTileRows);
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

// Few rows wait for memory, which is fastest in its own order: one output after the other. What
// they read of x must come from the first cache, so with more rows and inputs than that holds, a
// chunk of the inputs meets some outputs, and then the next chunk; their sums are kept meanwhile.
// But pieces of weights come at three quarters of the speed of whole rows, so that up to four rows
// rather read some of x from the second cache.
constexpr int kDotRows = 24;  // at most at once: sums in registers
constexpr std::int64_t kNearElements = 12288;
constexpr std::int64_t kNearElementsOfFour = 16384;
constexpr std::int64_t kAheadElements = 4096;  // how far ahead memory is asked for weights
constexpr std::int64_t kDotOutputs = 64;       // whose sums are kept
static_assert(sizeof(float) * kDotOutputs * kDotRows * kWidth <= kPairScratchBytes);

// Inputs [begin, begin + n) of outputs from `output` on.
struct DotChunk {
  std::int64_t output;
  std::int64_t n_outputs;
  std::int64_t begin;
  std::int64_t n;
};

// Where the weights lie that are read kAheadElements after those of output `o` of a chunk, or a
// little more; past the end of all weights asking for them is harmless.
LONGHAUL_INLINE const std::uint16_t* weights_ahead(const PairLinearTask& t, const DotChunk& chunk,
                                                   std::int64_t o, std::int64_t chunk_length) {
  if (chunk.n == t.n_in) return t.weight + (chunk.output + o) * t.weight_stride + kAheadElements;
  std::int64_t begin = chunk.begin;
  std::int64_t ahead = o + quotient_up(kAheadElements, chunk_length);
  if (ahead >= chunk.n_outputs) {
    begin += chunk_length;
    if (begin < t.n_in) {
      ahead -= chunk.n_outputs;
    } else {
      begin = 0;
    }
  }
  return t.weight + (chunk.output + ahead) * t.weight_stride + begin;
}

template <int kRows>
void finish_dots(const PairLinearTask& t, std::int64_t row, std::int64_t output,
                 const Vec (&sums)[kRows]) {
  for (int r = 0; r < kRows; ++r) {
    float* out = t.out + (row + r) * t.out_stride + output;
    float sum = sum_of(sums[r]);
    if (t.bias != nullptr) sum += t.bias[output];
    *out = t.accumulate ? *out + sum : sum;
  }
}

// kRows rows from `row` on with an output's inputs of a chunk.
template <int kRows>
LONGHAUL_INLINE void dot_chunk(const PairLinearTask& t, std::int64_t row, const DotChunk& chunk,
                               std::int64_t o, const std::uint16_t* ahead) {
  const std::uint16_t* w = t.weight + (chunk.output + o) * t.weight_stride + chunk.begin;
  const std::uint16_t* x = t.x + chunk.begin * t.n_rows + row * kPairUnit;
  float* kept = reinterpret_cast<float*>(t.scratch) + o * kDotRows * kWidth;
  Vec sums[kRows] = {};
  if (chunk.begin > 0) {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) sums[r] = load(kept + r * kWidth);
  }
  const auto add = [&](Words words) {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r)
      sums[r] = add_pair_products(sums[r], words, load_words(x + r * kPairUnit));
    x += t.n_rows * kPairUnit;
  };
  const std::uint16_t* const end = w + chunk.n / kPairUnit * kPairUnit;
  for (; w < end; w += kPairUnit, ahead += kPairUnit) {
    __builtin_prefetch(ahead, /*rw=*/0, /*locality=*/3);
    add(load_words(w));
  }
  if (const std::int64_t rest = chunk.n % kPairUnit; rest > 0) {
    Words words{};
    __builtin_memcpy(&words, w, static_cast<std::size_t>(rest) * 2);
    add(words);
  }
  if (chunk.begin + chunk.n == t.n_in) return finish_dots(t, row, chunk.output + o, sums);
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) store(kept + r * kWidth, sums[r]);
}

template <int kRows>
void dot_outputs(const PairLinearTask& t, std::int64_t row) {
  const std::int64_t n_elements = t.n_in * kRows;  // of x
  const bool in_order =
      kRows == 1 || n_elements <= (kRows <= 4 ? kNearElementsOfFour : kNearElements);
  const std::int64_t n_chunks = in_order ? 1 : quotient_up(n_elements, kNearElements);
  const std::int64_t n_units = quotient_up(t.n_in, kPairUnit);
  const std::int64_t length = quotient_up(n_units, n_chunks) * kPairUnit;
  for (std::int64_t output = t.output_begin; output < t.output_end; output += kDotOutputs) {
    DotChunk chunk = {output, smaller(kDotOutputs, t.output_end - output), 0, 0};
    for (; chunk.begin < t.n_in; chunk.begin += length) {
      chunk.n = smaller(length, t.n_in - chunk.begin);
      for (std::int64_t o = 0; o < chunk.n_outputs; ++o)
        dot_chunk<kRows>(t, row, chunk, o, weights_ahead(t, chunk, o, length));
    }
  }
}

template <int kRows = kDotRows>
void dot_rows(const PairLinearTask& t, std::int64_t n_rows, std::int64_t row) {
  if (n_rows == kRows) {
    dot_outputs<kRows>(t, row);
  } else if constexpr (kRows > 1) {
    dot_rows<kRows - 1>(t, n_rows, row);
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

void pair_few_rows(const PairLinearTask& t) {
  const std::int64_t n_rows = t.row_end - t.row_begin;
  const std::int64_t n_parts = quotient_up(n_rows, kDotRows);
  for (std::int64_t part = 0; part < n_parts; ++part) {
    const std::int64_t begin = t.row_begin + part * n_rows / n_parts;
    const std::int64_t end = t.row_begin + (part + 1) * n_rows / n_parts;
    dot_rows(t, end - begin, begin);
  }
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
