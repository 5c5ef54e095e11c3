// Intel's matrix extension, AMX: registers of 16 rows of 64 bytes, which an instruction multiplies
// whole. A product's right side is laid out as the blocks of caches and the panels of int8 weights
// are: words of neighbouring elements along the sum, a row of 16 words for 16 columns.
// Only files that are compiled for AMX include this.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kAmxRows = 16;      // of the left side and of sums
constexpr std::int64_t kAmxColumns = 16;   // of the right side and of sums: 32-bit words
constexpr std::int64_t kAmxRowBytes = 64;  // of each register
constexpr std::int64_t kAmxPairs = 32;     // elements of bf16 along the sum that a step takes
constexpr std::int64_t kAmxBytes = 64;     // of int8 likewise

// Of registers: 0 to 3 hold sums, those from 4 on left sides, the others right sides (or all are
// whole). A product takes about as many cycles as its left side has rows.
struct AmxShape {
  std::int64_t n_rows = kAmxRows;      // of left sides and sums
  std::int64_t right_rows = kAmxRows;  // words along the sum
  int n_left_sides = 1;
};

// While it lives, this thread's tile registers are configured.
class AmxRegisters {
 public:
  explicit AmxRegisters(const AmxShape& shape = {}) {
    alignas(64) Configuration all;
    for (int i = 0; i < 8; ++i) {
      const bool is_right = i >= 4 + shape.n_left_sides;
      const bool is_left = i >= 4 && !is_right;
      all.row_bytes[i] = static_cast<std::uint16_t>(is_left ? shape.right_rows * 4 : kAmxRowBytes);
      all.n_rows[i] = static_cast<std::uint8_t>(is_right ? shape.right_rows : shape.n_rows);
    }
    // The intrinsic tells the compiler of the first eight bytes only.
    __asm__ volatile("" ::"r"(&all) : "memory");
    _tile_loadconfig(&all);
  }
  ~AmxRegisters() { _tile_release(); }
  AmxRegisters(const AmxRegisters&) = delete;
  AmxRegisters& operator=(const AmxRegisters&) = delete;

 private:
  struct Configuration {  // what LDTILECFG reads
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t n_rows[16] = {};
  };
  static_assert(sizeof(Configuration) == 64);
};

// The compiler does not know that loads of tiles read memory: what was stored before must be there.
LONGHAUL_INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

// Registers 0 to 3 hold sums of 32 rows x 32 columns:  0 1
//                                                      2 3
LONGHAUL_INLINE void amx_clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
LONGHAUL_INLINE void amx_load_sums(const float* c, std::int64_t c_stride) {
  const std::int64_t bytes = c_stride * 4;
  _tile_loadd(0, c, bytes);
  _tile_loadd(1, c + kAmxColumns, bytes);
  _tile_loadd(2, c + kAmxRows * c_stride, bytes);
  _tile_loadd(3, c + kAmxRows * c_stride + kAmxColumns, bytes);
}
LONGHAUL_INLINE void amx_store_sums(void* c, std::int64_t c_stride) {
  const std::int64_t bytes = c_stride * 4;
  auto* words = static_cast<float*>(c);
  _tile_stored(0, words, bytes);
  _tile_stored(1, words + kAmxColumns, bytes);
  _tile_stored(2, words + kAmxRows * c_stride, bytes);
  _tile_stored(3, words + kAmxRows * c_stride + kAmxColumns, bytes);
}

// Adds the products of 32 rows of a with 32 columns of b over one step, strides in bytes.
LONGHAUL_INLINE void amx_add_pairs(const void* a, std::int64_t a_stride, const void* b,
                                   std::int64_t b_stride) {
  const auto* left = static_cast<const std::byte*>(a);
  const auto* right = static_cast<const std::byte*>(b);
  _tile_loadd(6, right, b_stride);
  _tile_loadd(4, left, a_stride);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, right + kAmxRowBytes, b_stride);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, left + kAmxRows * a_stride, a_stride);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
