// Products of 32 rows of x with 32 lanes of integer weights by AMX, over one part of the inputs,
// and scaling their sums. Moving and scaling the sums takes as long as multiplying: so while a
// block is multiplied, the sums of the block before it are scaled, some rows after every product.
// (Scaling two parts at once would spare a quarter of the loads and stores, but twice the sums
// leave the first cache too little room for what passes through it.)
//
// Of a Format (amx_integer_linear.h) this needs: kInputs, those of a tile of weights; kUsualTiles
// along a part, and the kUsualXStride that comes with them; kScalesLanes.
#pragma once
#include "kernels/cpu/isa/amx.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kTileSums = kAmxRows * kAmxColumns;
// Of a block. Its sums are four tiles, one behind the other:  0 1
//                                                             2 3
constexpr std::int64_t kRows = 2 * kAmxRows;
constexpr std::int64_t kLanes = 2 * kAmxColumns;
constexpr std::int64_t kSums = kRows * kLanes;

template <typename Format>
constexpr std::int64_t kRightBytes = Format::kInputs* kAmxColumns;  // of a tile of weights

// A part's sums on their way to those of all parts.
struct Sums {
  std::int32_t* integers;    // [kSums]
  const float* x_scales;     // [n_rows]
  const float* lane_scales;  // [kLanes], where the format scales lanes part by part
  float* c;                  // [kSums]
  std::int64_t n_rows;
  bool is_first;  // part: c starts with it
};

// Rows [begin, begin + n), which lie in one tile.
template <typename Format, bool kIsFirst>
LONGHAUL_INLINE void scale_rows(const Sums& s, std::int64_t begin, std::int64_t n) {
  const std::int64_t at = begin / kAmxRows * 2 * kTileSums + begin % kAmxRows * kAmxColumns;
  Vec of_lanes[2] = {};
  if constexpr (Format::kScalesLanes) {
    of_lanes[0] = load(s.lane_scales);
    of_lanes[1] = load(s.lane_scales + kAmxColumns);
  }
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < n; ++r) {
    const Vec scale = broadcast(s.x_scales[begin + r]);
#pragma GCC unroll 2
    for (int column = 0; column < 2; ++column) {
      const std::int64_t i = at + r * kAmxColumns + column * kTileSums;
      Ints integers;
      __builtin_memcpy(&integers, s.integers + i, sizeof integers);
      Vec scaled = __builtin_convertvector(integers, Vec);
      if constexpr (Format::kScalesLanes) scaled *= of_lanes[column];
      scaled *= scale;
      store(s.c + i, kIsFirst ? scaled : load(s.c + i) + scaled);
    }
  }
}

template <typename Format>
void scale(const Sums& s) {
  for (std::int64_t r = 0; r < s.n_rows; ++r)
    s.is_first ? scale_rows<Format, true>(s, r, 1) : scale_rows<Format, false>(s, r, 1);
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

// Of each of n_shares.
LONGHAUL_INLINE std::int64_t lines_of(const Ahead& ahead, std::int64_t n_shares) {
  return (ahead.end - ahead.begin + n_shares * 64 - 1) / (n_shares * 64);
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

// One step along the inputs. With kIsFirst of a part: each register's sums of the part before go
// to memory just before they are cleared, which delays the products least; those of the upper rows
// are there at the first call of meanwhile(), those of the lower rows at the third.
template <typename Format, bool kIsFirst, typename Meanwhile>
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
  _tile_loadd(7, weight + kRightBytes<Format>, kAmxRowBytes);
  _tile_dpbssd(1, 4, 7);
  use_time();
  _tile_loadd(5, x + kAmxRows * x_stride, x_stride);
  if constexpr (kIsFirst) {
    _tile_stored(2, sums_before + 2 * kTileSums, kAmxRowBytes);
    _tile_zero(2);
  }
  _tile_dpbssd(2, 5, 6);
  if constexpr (kIsFirst) {
    _tile_stored(3, sums_before + 3 * kTileSums, kAmxRowBytes);
    _tile_zero(3);
  }
  use_time();
  _tile_dpbssd(3, 5, 7);
  use_time();
}

// Leaves the sums in registers. What was there before goes to before.integers and is scaled.
template <typename Format, bool kIsFirst>
__attribute__((noinline)) void multiply_usual(const Block& b, const Sums& before, Ahead ahead) {
  constexpr std::int64_t kShares = 4 * Format::kUsualTiles;
  constexpr std::int64_t kStride = Format::kUsualXStride;
  // Members one by one: a copy of the whole would wait until they all are written.
  const std::byte* x = b.x;
  const std::int8_t* weight = b.weight;
  const Sums s = {before.integers, before.x_scales, before.lane_scales, before.c, kRows, kIsFirst};
  const std::int64_t n_lines = lines_of(ahead, kShares);
  std::int64_t row = 0;
  const auto meanwhile = [&]() __attribute__((always_inline)) {
    prefetch_lines(ahead, n_lines);
    scale_rows<Format, kIsFirst>(s, row, kRows / kShares);
    row += kRows / kShares;
  };
  multiply_tiles<Format, true>(x, kStride, weight, before.integers, meanwhile);
#pragma GCC unroll 2
  for (std::int64_t tile = 1; tile < Format::kUsualTiles; ++tile) {
    multiply_tiles<Format, false>(x + tile * Format::kInputs, kStride,
                                  weight + tile * 2 * kRightBytes<Format>, nullptr, meanwhile);
  }
}

// The same for any part and any number of rows.
template <typename Format>
void multiply_any(const Block& b, const Sums& before, Ahead ahead) {
  const std::int64_t n_lines = lines_of(ahead, 4 * b.n_tiles);
  const auto meanwhile = [&] { prefetch_lines(ahead, n_lines); };
  multiply_tiles<Format, true>(b.x, b.x_stride, b.weight, before.integers, meanwhile);
  for (std::int64_t tile = 1; tile < b.n_tiles; ++tile) {
    multiply_tiles<Format, false>(b.x + tile * Format::kInputs, b.x_stride,
                                  b.weight + tile * 2 * kRightBytes<Format>, nullptr, meanwhile);
  }
  scale<Format>(before);
}

template <typename Format>
LONGHAUL_INLINE void multiply(const Block& b, const Sums& before, const Ahead& ahead,
                              bool is_usual) {
  if (is_usual && before.n_rows == kRows) {
    before.is_first ? multiply_usual<Format, true>(b, before, ahead)
                    : multiply_usual<Format, false>(b, before, ahead);
  } else {
    multiply_any<Format>(b, before, ahead);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
