// The two products of attention of few rows with codes, by AMX
// (kernels/cpu/isa/amx_few_attention.cc).
//
// Codes are multiplied as unsigned bytes. On the left integers of 16 bits are cut into two signed
// bytes, which are rows of their own: with n rows, row r of a left side has the upper bytes of row
// r and row n + r the lower ones. Sums are exact, and so is what two of them come to together.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/isa/read_ahead.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kByteRows = kMostRunKeys / 4;  // words of codes of 8 bits along a run
constexpr std::int64_t kStepCodes = 4 * kByteRows;    // along the sum
constexpr std::int64_t kRunColumns = 2 * kAmxColumns;
static_assert(kRunColumns == kMostRunKeys && kStepCodes == kAmxUnit);

struct CodeSpace {
  std::int8_t* queries;  // [2 n_rows, kMostCodes]
  std::int8_t* weights;  // likewise, of a panel's keys
  std::int32_t* sums;    // [2 n_rows, kScoreStride]
  float* bytes;          // [2, kStepFloats] codes of 4 bits as bytes
};
constexpr std::size_t kLeftBytes = kAmxRows * kMostCodes;
constexpr std::size_t kSumBytes = kAmxRows * kScoreStride * sizeof(std::int32_t);
constexpr std::int64_t kStepFloats = 2 * kByteRows * kRunColumns;
constexpr std::size_t kCodeSpaceBytes =
    2 * kLeftBytes + kSumBytes + 2 * kStepFloats * sizeof(float);

CodeSpace code_space(std::byte* at) {
  const auto take = [&](std::size_t n) {
    std::byte* out = at;
    at += n;
    return out;
  };
  CodeSpace out;
  out.queries = reinterpret_cast<std::int8_t*>(take(kLeftBytes));
  out.weights = reinterpret_cast<std::int8_t*>(take(kLeftBytes));
  out.sums = reinterpret_cast<std::int32_t*>(take(kSumBytes));
  out.bytes = reinterpret_cast<float*>(at);
  return out;
}

// Rows of n integers as pack_left orders them -> their bytes, in order; n is a multiple of 32.
void split_rows(const Tile& tile, const float* packed, std::int64_t n, std::int8_t* out) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0f0d'0e0c'0b09'0a08, 0x0705'0604'0301'0200));
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    std::int8_t* upper = out + r * kMostCodes;
    std::int8_t* lower = upper + tile.n_rows * kMostCodes;
    for (std::int64_t i = 0; i < n; i += 32) {
      const __m512i x = _mm512_loadu_si512(packed + r * kScoreStride + i / 2);
      const __m512i rest = _mm512_add_epi16(x, _mm512_set1_epi16(128));  // of the lower byte: -128
      const __m256i low = _mm512_cvtepi16_epi8(x);
      const __m256i high = _mm512_cvtepi16_epi8(_mm512_srai_epi16(rest, 8));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(lower + i), _mm256_shuffle_epi8(low, order));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(upper + i), _mm256_shuffle_epi8(high, order));
    }
  }
}
// What 16 sums of a row are.
LONGHAUL_INLINE Vec sums_at(const Tile& tile, const CodeSpace& space, std::int64_t row,
                            std::int64_t column) {
  const auto words_of = [&](std::int64_t r) {
    return load_words(reinterpret_cast<const float*>(space.sums + r * kScoreStride + column));
  };
  const Words sum = (words_of(row) << 8) + words_of(tile.n_rows + row);
  return __builtin_convertvector(reinterpret_cast<Ints>(sum), Vec);
}

// 32 columns of a step of codes: where their bytes begin, and bytes from one row of words to the
// next.
struct Bytes {
  const float* at;
  std::int64_t row_bytes;
};
// Codes as they lie, or for those of 4 bits unpacked: [kByteRows, kRunColumns] words.
LONGHAUL_INLINE Bytes bytes_of(KvType type, const float* words, std::int64_t stride,
                               float* unpacked) {
  if (type == KvType::kInt8) return {words, stride * 4};
  constexpr std::uint32_t kLower = 0x0f0f0f0fU;
  float* out = unpacked;
#pragma GCC unroll 4
  for (std::int64_t row = 0; row < kByteRows / 2; ++row, words += stride, out += 2 * kRunColumns) {
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < kRunColumns; i += kWidth) {
      const Words x = load_words(words + i);
      store(out + i, reinterpret_cast<Vec>(x & kLower));
      store(out + kRunColumns + i, reinterpret_cast<Vec>((x >> 4) & kLower));
    }
  }
  return {unpacked, kRunColumns * 4};
}
LONGHAUL_INLINE std::int64_t words_of(KvType type, std::int64_t n_codes) {
  return n_codes / (type == KvType::kInt8 ? 4 : 8);
}

// What a left side is multiplied with at once: two times 32 columns, or the first alone.
struct Step {
  Bytes first;
  Bytes last;
};
// multiply(i, step) for the steps that prepare(i, place of its bytes) makes; a step is prepared
// before the one ahead of it is multiplied, since what has just been stored is long in coming.
template <typename Prepare, typename Multiply>
LONGHAUL_INLINE void step_by_step(std::int64_t n, float* bytes, const Prepare& prepare,
                                  const Multiply& multiply) {
  Step next = prepare(0, bytes);
  for (std::int64_t i = 0; i < n; ++i) {
    const Step here = next;
    if (i + 1 < n) next = prepare(i + 1, bytes + (i + 1) % 2 * kStepFloats);
    finish_stores();
    multiply(i, here);
  }
  finish_stores();
}

// Adds the products of the left side in register 4 with 32 columns to registers 0 and 1; 2 and 3.
LONGHAUL_INLINE void add_to_first(const Bytes& b) {
  _tile_loadd(6, b.at, b.row_bytes);
  _tile_dpbsud(0, 4, 6);
  _tile_loadd(7, b.at + kAmxColumns, b.row_bytes);
  _tile_dpbsud(1, 4, 7);
}
LONGHAUL_INLINE void add_to_last(const Bytes& b) {
  _tile_loadd(5, b.at, b.row_bytes);
  _tile_dpbsud(2, 4, 5);
  _tile_loadd(6, b.at + kAmxColumns, b.row_bytes);
  _tile_dpbsud(3, 4, 6);
}
LONGHAUL_INLINE void store_first(std::int32_t* sums) {
  _tile_stored(0, sums, kScoreStride * 4);
  _tile_stored(1, sums + kAmxColumns, kScoreStride * 4);
}
LONGHAUL_INLINE void store_last(std::int32_t* sums) {
  _tile_stored(2, sums, kScoreStride * 4);
  _tile_stored(3, sums + kAmxColumns, kScoreStride * 4);
}

// The lines that 32 columns of a step take in the cache.
LONGHAUL_INLINE void ask_for_step(KvType type, ReadAhead& ahead) {
  ahead.ask<kByteRows>();
  if (type == KvType::kInt8) ahead.ask<kByteRows>();
}

// Two runs side by side, for a sum waits long for the one before.
void multiply_keys(const AttentionTask& task, const Panel& panel, const CodeSpace& space) {
  const std::int64_t n_steps = task.head_dim / kStepCodes;  // of two runs
  const auto part = [&](std::int64_t run, std::int64_t step, float* bytes) {
    const std::int64_t row = words_of(task.k_type, step * kStepCodes);
    return bytes_of(task.k_type, panel.runs[run].k + row * task.block_size, task.block_size, bytes);
  };
  const auto prepare = [&](std::int64_t i, float* bytes) {
    const std::int64_t run = i / n_steps * 2;
    const std::int64_t last = smaller(run + 1, panel.n_runs - 1);
    return Step{part(run, i % n_steps, bytes),
                part(last, i % n_steps, bytes + kByteRows * kRunColumns)};
  };
  step_by_step((panel.n_runs + 1) / 2 * n_steps, space.bytes, prepare,
               [&](std::int64_t i, const Step& step) {
                 const std::int64_t run = i / n_steps * 2;
                 const std::int64_t dim = i % n_steps * kStepCodes;
                 if (dim == 0) amx_clear_sums();
                 _tile_loadd(4, space.queries + dim, kMostCodes);
                 ask_for_step(task.k_type, *panel.ahead);
                 add_to_first(step.first);
                 ask_for_step(task.k_type, *panel.ahead);
                 add_to_last(step.last);
                 if (dim + kStepCodes < task.head_dim) return;
                 store_first(space.sums + run * kMostRunKeys);
                 if (run + 1 < panel.n_runs) store_last(space.sums + (run + 1) * kMostRunKeys);
               });
}

void score_codes(const AttentionTask& task, const Tile& tile, const Panel& panel,
                 const CodeSpace& space) {
  multiply_keys(task, panel, space);
  for (std::int64_t column = 0; column < panel.n_keys; column += kWidth) {
    const Run& run = panel.runs[column / kMostRunKeys];
    const Vec scale = load_halves(run.k_scales + column % kMostRunKeys);
    const Vec minimum = load_halves(run.k_minima + column % kMostRunKeys);
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      const Vec product = sums_at(tile, space, r, column) * broadcast(tile.q_units[r]);
      store(tile.scores + r * kScoreStride + column,
            product * scale + minimum * broadcast(tile.q_sums[r]));
    }
  }
}

// 64 dims at a time, of which the last 32 may be none.
void multiply_values(const AttentionTask& task, const Panel& panel, const CodeSpace& space) {
  const std::int64_t n_groups = (task.head_dim + 2 * kRunColumns - 1) / (2 * kRunColumns);
  const auto part = [&](std::int64_t run, std::int64_t dim, float* bytes) {
    return bytes_of(task.v_type, panel.runs[run].v + dim, task.head_dim, bytes);
  };
  const auto prepare = [&](std::int64_t i, float* bytes) {
    const std::int64_t dim = i / panel.n_runs * 2 * kRunColumns;
    const std::int64_t last = smaller(dim + kRunColumns, task.head_dim - kRunColumns);
    return Step{part(i % panel.n_runs, dim, bytes),
                part(i % panel.n_runs, last, bytes + kByteRows * kRunColumns)};
  };
  step_by_step(n_groups * panel.n_runs, space.bytes, prepare,
               [&](std::int64_t i, const Step& step) {
                 const std::int64_t run = i % panel.n_runs;
                 const std::int64_t dim = i / panel.n_runs * 2 * kRunColumns;
                 if (run == 0) amx_clear_sums();
                 _tile_loadd(4, space.weights + run * kMostRunKeys, kMostCodes);
                 ask_for_step(task.v_type, *panel.ahead);
                 add_to_first(step.first);
                 ask_for_step(task.v_type, *panel.ahead);
                 add_to_last(step.last);
                 if (run + 1 < panel.n_runs) return;
                 store_first(space.sums + dim);
                 if (dim + kRunColumns < task.head_dim) store_last(space.sums + dim + kRunColumns);
               });
}

void add_code_values(const AttentionTask& task, const Tile& tile, const Panel& panel,
                     const CodeSpace& space) {
  multiply_values(task, panel, space);
  for (std::int64_t r = 0; r < tile.n_rows; ++r) {
    float* o = tile.o + r * tile.o_stride;
    const Vec factor = broadcast(tile.factor[r]);
    const Vec unit = broadcast(tile.left_units[r]);
    for (std::int64_t d = 0; d < task.head_dim; d += kWidth) {
      store(o + d, load(o + d) * factor + sums_at(tile, space, r, d) * unit);
    }
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
