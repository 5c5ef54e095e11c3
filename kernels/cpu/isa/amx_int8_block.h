// Products of 32 rows of x with 32 lanes of int8 weights by AMX, over one group of inputs, and
// scaling their sums. Moving and scaling the sums takes as long as multiplying: so while a block is
// multiplied, the sums of the block before it are scaled, some rows after every product.
// (Scaling two groups at once would spare a quarter of the loads and stores, but twice the sums
// leave the first cache too little room for what passes through it.)
#pragma once
#include "kernels/cpu/isa/amx.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kTileBytes = kAmxRows * kAmxRowBytes;
constexpr std::int64_t kTileSums = kAmxRows * kAmxColumns;
// Of a block. Its sums are four tiles, one behind the other:  0 1
//                                                             2 3
constexpr std::int64_t kRows = 2 * kAmxRows;
constexpr std::int64_t kLanes = 2 * kAmxColumns;
constexpr std::int64_t kSums = kRows * kLanes;
constexpr std::int64_t kUsualTiles = 2;  // along a group of 128 inputs

// A group's sums on their way to those of all groups.
struct Sums {
  std::int32_t* integers;  // [kSums]
  const float* x_scales;   // [n_rows]
  float* c;                // [kSums]
  std::int64_t n_rows;
  bool is_first;  // group: c starts with it
};

// Rows [begin, begin + n), which lie in one tile.
template <bool kIsFirst>
LONGHAUL_INLINE void scale_rows(const Sums& s, std::int64_t begin, std::int64_t n) {
  const std::int64_t at = begin / kAmxRows * 2 * kTileSums + begin % kAmxRows * kAmxColumns;
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < n; ++r) {
    const Vec scale = broadcast(s.x_scales[begin + r]);
#pragma GCC unroll 2
    for (int column = 0; column < 2; ++column) {
      const std::int64_t i = at + r * kAmxColumns + column * kTileSums;
      Ints integers;
      __builtin_memcpy(&integers, s.integers + i, sizeof integers);
      const Vec scaled = __builtin_convertvector(integers, Vec) * scale;
      store(s.c + i, kIsFirst ? scaled : load(s.c + i) + scaled);
    }
  }
}

void scale(const Sums& s) {
  for (std::int64_t r = 0; r < s.n_rows; ++r) {
    s.is_first ? scale_rows<true>(s, r, 1) : scale_rows<false>(s, r, 1);
  }
}

// Memory that will be read soon.
struct Ahead {
  const std::uint8_t* begin;
  const std::uint8_t* end;
};
LONGHAUL_INLINE void prefetch_lines(Ahead& ahead, std::int64_t n) {
  for (const std::uint8_t* end = ahead.begin + n * 64; ahead.begin < ahead.end && ahead.begin < end;
       ahead.begin += 64) {
    __builtin_prefetch(ahead.begin, 0, 2);
  }
}

// Of each of n_parts.
LONGHAUL_INLINE std::int64_t lines_of(const Ahead& ahead, std::int64_t n_parts) {
  return (ahead.end - ahead.begin + n_parts * 64 - 1) / (n_parts * 64);
}

struct Block {
  const std::byte* x;  // tiles [2][n_tiles]
  std::int64_t x_stride;
  const std::int8_t* weight;  // tiles [n_tiles][2]
  std::int64_t n_tiles;
};

LONGHAUL_INLINE void store_tiles(std::int32_t* to) {
  _tile_stored(0, to, kAmxRowBytes);
  _tile_stored(1, to + kTileSums, kAmxRowBytes);
  _tile_stored(2, to + 2 * kTileSums, kAmxRowBytes);
  _tile_stored(3, to + 3 * kTileSums, kAmxRowBytes);
  finish_stores();
}

// One step along the inputs. With kIsFirst of a group: each register's sums of the group before go
// to memory just before they are cleared, which delays the products least.
template <bool kIsFirst, typename Meanwhile>
LONGHAUL_INLINE void multiply_tiles(const std::byte* x, std::int64_t x_stride,
                                    const std::int8_t* weight, std::int32_t* sums_before,
                                    const Meanwhile& meanwhile) {
  const auto use_time = [&]() __attribute__((always_inline)) {
    finish_stores();
    meanwhile();
  };
  _tile_loadd(6, weight, kAmxRowBytes);
  _tile_loadd(4, x, x_stride);
  if constexpr (kIsFirst) {
    _tile_stored(0, sums_before, kAmxRowBytes);
    _tile_zero(0);
  }
  _tile_dpbssd(0, 4, 6);
  if constexpr (kIsFirst) {
    _tile_stored(1, sums_before + kTileSums, kAmxRowBytes);
    _tile_zero(1);
  }
  use_time();
  _tile_loadd(7, weight + kTileBytes, kAmxRowBytes);
  _tile_dpbssd(1, 4, 7);
  use_time();
  _tile_loadd(5, x + kAmxRows * x_stride, x_stride);
  if constexpr (kIsFirst) {
    _tile_stored(2, sums_before + 2 * kTileSums, kAmxRowBytes);
    _tile_zero(2);
  }
  _tile_dpbssd(2, 5, 6);
  use_time();
  if constexpr (kIsFirst) {
    _tile_stored(3, sums_before + 3 * kTileSums, kAmxRowBytes);
    _tile_zero(3);
  }
  _tile_dpbssd(3, 5, 7);
  use_time();
}

// Leaves the sums in registers. What was there before goes to before.integers and is scaled.
template <bool kIsFirst>
__attribute__((noinline)) void multiply_usual(const Block& b, const Sums& before, Ahead ahead) {
  constexpr std::int64_t kParts = 8;
  constexpr std::int64_t kStride = kUsualTiles * kAmxBytes;
  // Members one by one: a copy of the whole would wait until they all are written.
  const std::byte* x = b.x;
  const std::int8_t* weight = b.weight;
  const Sums s = {before.integers, before.x_scales, before.c, kRows, kIsFirst};
  const std::int64_t n_lines = lines_of(ahead, kParts);
  std::int64_t row = 0;
  const auto meanwhile = [&]() __attribute__((always_inline)) {
    prefetch_lines(ahead, n_lines);
    scale_rows<kIsFirst>(s, row, kRows / kParts);
    row += kRows / kParts;
  };
  multiply_tiles<true>(x, kStride, weight, before.integers, meanwhile);
  multiply_tiles<false>(x + kAmxBytes, kStride, weight + 2 * kTileBytes, nullptr, meanwhile);
}

// The same for any group and any number of rows.
void multiply_any(const Block& b, const Sums& before, Ahead ahead) {
  const std::int64_t n_lines = lines_of(ahead, 4 * b.n_tiles);
  const auto meanwhile = [&] { prefetch_lines(ahead, n_lines); };
  multiply_tiles<true>(b.x, b.x_stride, b.weight, before.integers, meanwhile);
  for (std::int64_t tile = 1; tile < b.n_tiles; ++tile) {
    multiply_tiles<false>(b.x + tile * kAmxBytes, b.x_stride, b.weight + tile * 2 * kTileBytes,
                          nullptr, meanwhile);
  }
  scale(before);
}

LONGHAUL_INLINE void multiply(const Block& b, const Sums& before, const Ahead& ahead,
                              bool is_usual) {
  if (is_usual && before.n_rows == kRows) {
    before.is_first ? multiply_usual<true>(b, before, ahead)
                    : multiply_usual<false>(b, before, ahead);
  } else {
    multiply_any(b, before, ahead);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
