// Groups of codes: how caches of 8, 4 and 2 bits keep K or V of one head, and where a block holds
// each code and what it is worth. Host only, the same bits on every machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/kv_block.h"

namespace longhaul {

struct KvGroupRange {
  Float16 scale;
  Float16 minimum;  // 0 where a type has none
};

// code * scale + minimum, where a code of fp8 is worth its E4M3 value.
float value_of_code(KvType type, std::uint8_t code, const KvGroupRange& range);

// The largest code of a type that has codes.
unsigned most_code(KvType type);

// Of int8 and int4 codes in [0, 255] or [0, 15]. The minimum is rounded down and the scale up to
// f16, so that the group's values lie within its codes: each comes back within half a scale. Values
// of a constant group that f16 can hold come back exactly. Values beyond the range of f16 saturate;
// a group with a NaN or an infinity comes back as NaN.
//
// Of fp8 E4M3 codes, rounded to nearest even. The scale is the smallest power of two with which the
// largest magnitude is at most 448, E4M3's largest, so that dividing by it and multiplying with it
// is exact and what was quantised once is quantised again without loss; between 2^-24 and 2^15, the
// powers that f16 has, and 0 where all values are. (Checkpoints of vLLM have one scale for all of a
// layer's keys, found by calibration or 1; the OCP MX formats have powers of two for each 32.)
KvGroupRange quantise(KvType type, std::span<const float> values, std::span<std::uint8_t> codes);

// The same as KIVI publishes it (quant/new_pack.py), for kivi4 and kivi2: minimum and scale =
// (largest - minimum) / most code are rounded to the nearest f16, codes are
//   round(clamp((value - minimum) / scale, 0, most code)), halves to even.
// Published are f16 values, so that minima are exact and only the scale is rounded; here they are
// f32. Where the scale is 0 (constant groups), codes are 0; published is 0 / 0 there.
KvGroupRange quantise_group(KvType type, std::span<const float> values,
                            std::span<std::uint8_t> codes);

// Where a block keeps codes and their scales, of types that have codes; slot is in [0, block_size),
// dim in [0, head_dim). Nothing is checked: of others results mean nothing.

// A place for a code in the K or V part of a block.
struct KvCodePlace {
  std::size_t byte = 0;
  int shift = 0;  // within the byte
};

KvCodePlace k_code_place(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim);
KvCodePlace v_code_place(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim);
// Which of a part's scales and minima are those of that code.
std::size_t k_range_index(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim);
std::size_t v_range_index(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim);
// `part` is the K or V part of a block, with that layout; index as above. Where the layout has no
// minima, 0 is read and none is written.
KvGroupRange read_range(const KvPartLayout& layout, const std::byte* part, std::size_t index);
void write_range(const KvPartLayout& layout, std::byte* part, std::size_t index,
                 const KvGroupRange& range);
// A code is in [0, most_code(type)]. Writing changes no bits of its neighbours in the same byte,
// but writes that byte: not for two threads at once.
std::uint8_t read_code(KvType type, const std::byte* part, KvCodePlace place);
void write_code(KvType type, std::byte* part, KvCodePlace place, std::uint8_t code);

}  // namespace longhaul
