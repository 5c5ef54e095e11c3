#include "kernels/read_keys.h"

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

}  // namespace

void read_key_dim(const KvBlockShape& shape, const std::byte* block, std::int64_t d, Extent slots,
                  std::span<float> to) {
  const std::int64_t first = d / kv_lanes(shape.k_type) * shape.block_size + slots.begin;
  const auto n = static_cast<std::int64_t>(to.size());
  float* const values = to.data();
  if (shape.k_type == KvType::kF32) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = value_at<float>(block, first + i);
    return;
  }
  if (shape.k_type == KvType::kBf16) {  // whole words, so that compilers use vectors
    const int shift = d % 2 == 0 ? 0 : 16;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto word = value_at<std::uint32_t>(block, first + i) >> shift;
      values[i] = to_float(BFloat16{static_cast<std::uint16_t>(word)});
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t slot = slots.begin + i;
    const KvGroupRange range =
        read_range(shape.part(shape.k_type), block, k_range_index(shape, slot, d));
    const auto code = read_code(shape.k_type, block, k_code_place(shape, slot, d));
    values[i] = value_of_code(shape.k_type, code, range);
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
