#include "kernels/kv_quantise.h"

#include <algorithm>
#include <cmath>

namespace longhaul {
namespace {

constexpr std::uint16_t kSign = 0x8000;
constexpr std::uint16_t kNan = 0x7e00;
constexpr std::uint16_t kLargest = 0x7bff;  // 65504

// The neighbour of a finite f16 below it.
Float16 below(Float16 value) {
  const std::uint16_t magnitude = value.bits & 0x7fff;
  if (magnitude == 0) return {static_cast<std::uint16_t>(kSign | 1)};
  return {static_cast<std::uint16_t>((value.bits & kSign) != 0 ? value.bits + 1 : value.bits - 1)};
}

Float16 rounded_down(float value) {
  if (value >= 65504.0F) return {kLargest};
  if (value <= -65504.0F) return {static_cast<std::uint16_t>(kSign | kLargest)};
  const Float16 nearest = to_f16(value);
  return to_float(nearest) > value ? below(nearest) : nearest;
}

Float16 rounded_up(float value) {
  const Float16 negative = rounded_down(-value);
  return {static_cast<std::uint16_t>(negative.bits ^ kSign)};
}

// Place of value `index` of a word that holds `lanes` of them.
KvCodePlace place_in_word(KvType type, std::int64_t word, std::int64_t index) {
  return {static_cast<std::size_t>(4 * word + index % 4),
          type == KvType::kInt4 && index >= 4 ? 4 : 0};
}

}  // namespace

KvGroupRange quantise(KvType type, std::span<const float> values, std::span<std::uint8_t> codes) {
  const auto most = static_cast<float>(type == KvType::kInt8 ? 255 : 15);
  float smallest = values.front();
  float largest = values.front();
  bool finite = true;
  for (const float value : values) {
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    finite = finite && std::isfinite(value);
  }
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  if (!finite) return {{kNan}, {kNan}};
  KvGroupRange range;
  range.minimum = rounded_down(smallest);
  const float minimum = to_float(range.minimum);
  range.scale = rounded_up((largest - minimum) / most);
  const float scale = to_float(range.scale);
  if (scale == 0.0F) return range;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float code = std::nearbyint((values[i] - minimum) / scale);
    codes[i] = static_cast<std::uint8_t>(std::clamp(code, 0.0F, most));
  }
  return range;
}

KvCodePlace k_code_place(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim) {
  const std::int64_t lanes = kv_lanes(shape.k_type);
  return place_in_word(shape.k_type, dim / lanes * shape.block_size + slot, dim % lanes);
}

KvCodePlace v_code_place(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim) {
  const std::int64_t lanes = kv_lanes(shape.v_type);
  return place_in_word(shape.v_type, slot / lanes * shape.head_dim + dim, slot % lanes);
}

std::uint8_t read_code(KvType type, const std::byte* part, KvCodePlace place) {
  const auto byte = static_cast<unsigned>(part[place.byte]) >> place.shift;
  return static_cast<std::uint8_t>(type == KvType::kInt4 ? byte & 0xfU : byte);
}

void write_code(KvType type, std::byte* part, KvCodePlace place, std::uint8_t code) {
  const unsigned mask = (type == KvType::kInt4 ? 0xfU : 0xffU) << place.shift;
  const unsigned before = static_cast<unsigned>(part[place.byte]) & ~mask;
  part[place.byte] = static_cast<std::byte>(before | (unsigned{code} << place.shift));
}

}  // namespace longhaul
