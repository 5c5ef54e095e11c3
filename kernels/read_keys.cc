#include "kernels/read_keys.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/dtype.h"
#include "kernels/kv_quantise.h"

namespace longhaul {
namespace {

template <typename T>
T value_at(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// What each code of fp8 is worth.
const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (unsigned code = 0; code < values.size(); ++code)
      values[code] = to_float(Float8E4m3{static_cast<std::uint8_t>(code)});
    return values;
  }();
  return kValues;
}

}  // namespace

KeyReader::KeyReader(const KvBlockShape& shape, const std::byte* block, Extent slots)
    : shape_(shape), block_(block), slots_(slots) {
  if (shape.k_type == KvType::kF32 || shape.k_type == KvType::kBf16) return;
  scales_.resize(static_cast<std::size_t>(slots.size()));
  minima_.resize(scales_.size());
  if (!quantises_groups(shape.k_type)) read_ranges(0);
}

void KeyReader::read_ranges(std::int64_t d) {
  const KvPartLayout layout = shape_.part(shape_.k_type);
  const std::int64_t n_alike = quantises_groups(shape_.k_type) ? kKvGroup : 1;
  for (std::int64_t begin = slots_.begin, end; begin < slots_.end; begin = end) {
    end = std::min(slots_.end, begin / n_alike * n_alike + n_alike);
    const KvGroupRange range = read_range(layout, block_, k_range_index(shape_, begin, d));
    std::fill_n(scales_.begin() + (begin - slots_.begin), end - begin, to_float(range.scale));
    std::fill_n(minima_.begin() + (begin - slots_.begin), end - begin, to_float(range.minimum));
  }
}

// As value_of_code has it; loops without branches, so that compilers use vectors.
void KeyReader::read_codes(std::int64_t d, float* to) const {
  const std::int64_t lanes = kv_lanes(shape_.k_type);
  const std::byte* words = block_ + (d / lanes * shape_.block_size + slots_.begin) * 4;
  const KvCodePlace in_word = k_code_place(shape_, 0, d % lanes);
  const auto shift = static_cast<int>(8 * in_word.byte) + in_word.shift;
  const std::uint32_t mask = most_code(shape_.k_type);
  const std::int64_t n = slots_.size();
  if (shape_.k_type == KvType::kFp8) {
    const std::array<float, 256>& values = e4m3_values();
    for (std::int64_t i = 0; i < n; ++i)
      to[i] = values[value_at<std::uint32_t>(words, i) >> shift & mask] * scales_[i];
    return;
  }
  const float* scales = scales_.data();
  const float* minima = minima_.data();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto code = static_cast<std::int32_t>(value_at<std::uint32_t>(words, i) >> shift & mask);
    to[i] = static_cast<float>(code) * scales[i] + minima[i];
  }
}

void KeyReader::read(std::int64_t d, std::span<float> to) {
  const std::int64_t first = d / kv_lanes(shape_.k_type) * shape_.block_size + slots_.begin;
  const auto n = static_cast<std::int64_t>(to.size());
  float* const values = to.data();
  if (shape_.k_type == KvType::kF32) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = value_at<float>(block_, first + i);
  } else if (shape_.k_type == KvType::kBf16) {  // whole words, so that compilers use vectors
    const int shift = d % 2 == 0 ? 0 : 16;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto word = value_at<std::uint32_t>(block_, first + i) >> shift;
      values[i] = to_float(BFloat16{static_cast<std::uint16_t>(word)});
    }
  } else {
    if (quantises_groups(shape_.k_type)) read_ranges(d);
    read_codes(d, values);
  }
}

void read_value(const KvBlockShape& shape, const std::byte* block, std::int64_t slot,
                std::span<float> to) {
  const std::byte* part = block + shape.k_bytes();
  const std::int64_t lanes = kv_lanes(shape.v_type);
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    const std::int64_t word = slot / lanes * shape.head_dim + d;
    float& value = to[static_cast<std::size_t>(d)];
    if (shape.v_type == KvType::kF32) {
      value = value_at<float>(part, word);
    } else if (shape.v_type == KvType::kBf16) {
      value = to_float(BFloat16{value_at<std::uint16_t>(part, word * 2 + slot % 2)});
    } else {
      const KvGroupRange range =
          read_range(shape.part(shape.v_type), part, v_range_index(shape, slot, d));
      const auto code = read_code(shape.v_type, part, v_code_place(shape, slot, d));
      value = value_of_code(shape.v_type, code, range);
    }
  }
}

}  // namespace longhaul
