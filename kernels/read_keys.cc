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
  const std::int64_t lanes = kv_lanes(shape.k_type);
  const std::int64_t first = d / lanes * shape.block_size;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::int64_t slot = slots.begin + static_cast<std::int64_t>(i);
    if (shape.k_type == KvType::kF32) {
      to[i] = value_at<float>(block, first + slot);
    } else if (shape.k_type == KvType::kBf16) {
      to[i] = to_float(BFloat16{value_at<std::uint16_t>(block, (first + slot) * 2 + d % 2)});
    } else {
      const KvGroupRange range =
          read_range(shape.part(shape.k_type), block, k_range_index(shape, slot, d));
      const auto code = read_code(shape.k_type, block, k_code_place(shape, slot, d));
      to[i] = value_of_code(shape.k_type, code, range);
    }
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
