// The instructions of Intel's AMX that kernels/cpu/isa/amx_*.cc use, on tile registers that are
// memory: included before everything else in those files (tests/amx_on_host/CMakeLists.txt), so
// that their intrinsics mean these functions. As the Intel 64 manual (volume 2, TDPBF16PS, TDPBSSD
// ...) defines them. An instruction outside LDTILECFG and TILERELEASE, or a product of tiles whose
// shapes do not fit, ends the program, as it would there.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __AMX_TILE__ 1

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadconfig emulated_amx::load_configuration
#define _tile_release emulated_amx::release
#define _tile_zero emulated_amx::zero
#define _tile_loadd emulated_amx::load
#define _tile_stream_loadd emulated_amx::load
#define _tile_stored emulated_amx::store
#define _tile_dpbf16ps emulated_amx::add_bf16_products
#define _tile_dpbssd emulated_amx::add_byte_products<std::int8_t>
#define _tile_dpbsud emulated_amx::add_byte_products<std::uint8_t>

namespace {
namespace emulated_amx {

constexpr int kRows = 16;
constexpr int kRowBytes = 64;
constexpr int kWords = kRowBytes / 4;

struct alignas(64) Tile {
  unsigned char bytes[kRows][kRowBytes];
  int n_rows;
  int row_bytes;
};
thread_local Tile tiles[8];
thread_local bool is_configured = false;

inline Tile& tile(int index) {
  if (!is_configured) std::abort();
  return tiles[index];
}

inline void load_configuration(const void* configuration) {
  const auto* bytes = static_cast<const unsigned char*>(configuration);
  if (bytes[0] != 1 || bytes[1] != 0) std::abort();  // palette, start row
  std::memset(tiles, 0, sizeof tiles);
  for (int i = 0; i < 8; ++i) {
    tiles[i].row_bytes = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i];
    tiles[i].n_rows = bytes[48 + i];
    if (tiles[i].row_bytes > kRowBytes || tiles[i].row_bytes % 4 != 0) std::abort();
    if (tiles[i].n_rows > kRows) std::abort();
  }
  is_configured = true;
}
inline void release() { is_configured = false; }

inline void zero(int index) { std::memset(tile(index).bytes, 0, sizeof tiles[0].bytes); }
inline void load(int index, const void* base, std::int64_t stride) {
  zero(index);  // what is beyond the shape
  Tile& to = tile(index);
  for (int r = 0; r < to.n_rows; ++r)
    std::memcpy(to.bytes[r], static_cast<const unsigned char*>(base) + r * stride, to.row_bytes);
}
inline void store(int index, void* base, std::int64_t stride) {
  const Tile& from = tile(index);
  for (int r = 0; r < from.n_rows; ++r)
    std::memcpy(static_cast<unsigned char*>(base) + r * stride, from.bytes[r], from.row_bytes);
}

// Half kHalf of each of a row's words as floats. Denormals are zeros.
template <int kHalf>
inline __m512 halves_of(__m512i words) {
  const __m512i bits = kHalf == 0 ? _mm512_slli_epi32(words, 16)
                                  : _mm512_and_si512(words, _mm512_set1_epi32(~0xffff));
  const __mmask16 is_normal = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
  return _mm512_castsi512_ps(_mm512_maskz_mov_epi32(is_normal, bits));
}

inline void require_product(const Tile& sums, const Tile& left, const Tile& right) {
  const bool fits = left.n_rows == sums.n_rows && right.row_bytes == sums.row_bytes &&
                    left.row_bytes == 4 * right.n_rows;
  if (!fits) std::abort();
}

inline void add_bf16_products(int sums_index, int left_index, int right_index) {
  Tile& sums = tile(sums_index);
  const Tile& left = tile(left_index);
  const Tile& right = tile(right_index);
  require_product(sums, left, right);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // results that are denormal are zeros
  for (int m = 0; m < kRows; ++m) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (int k = 0; k < kWords; ++k) {
      std::int32_t pair;
      std::memcpy(&pair, left.bytes[m] + 4 * k, sizeof pair);
      const __m512i a = _mm512_set1_epi32(pair);
      const __m512i b = _mm512_load_si512(right.bytes[k]);
      even = _mm512_fmadd_ps(halves_of<0>(a), halves_of<0>(b), even);
      odd = _mm512_fmadd_ps(halves_of<1>(a), halves_of<1>(b), odd);
    }
    const __m512 sum = _mm512_load_ps(sums.bytes[m]);
    _mm512_store_ps(sums.bytes[m], _mm512_add_ps(sum, _mm512_add_ps(even, odd)));
  }
  _mm_setcsr(before);
}

// Signed bytes on the left, those of Right on the right.
template <typename Right>
inline void add_byte_products(int sums_index, int left_index, int right_index) {
  Tile& sums = tile(sums_index);
  const Tile& left = tile(left_index);
  const Tile& right = tile(right_index);
  require_product(sums, left, right);
  for (int m = 0; m < sums.n_rows; ++m) {
    std::int32_t row[kWords];
    std::memcpy(row, sums.bytes[m], sizeof row);
    for (int k = 0; k < kWords; ++k) {
      std::int8_t a[4];
      std::memcpy(a, left.bytes[m] + 4 * k, sizeof a);
      for (int n = 0; n < kWords; ++n) {
        Right b[4];
        std::memcpy(b, right.bytes[k] + 4 * n, sizeof b);
        for (int i = 0; i < 4; ++i) row[n] += a[i] * b[i];
      }
    }
    std::memcpy(sums.bytes[m], row, sizeof row);
  }
}

}  // namespace emulated_amx
}  // namespace
