#include "kernels/kv_quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

constexpr int bits_of(KvType type) {
  return type == KvType::kInt8 || type == KvType::kFp8 ? 8 : type == KvType::kKivi2 ? 2 : 4;
}
// Place of value `index` of a word.
KvCodePlace place_in_word(KvType type, std::int64_t word, std::int64_t index) {
  return {static_cast<std::size_t>(4 * word + index % 4),
          static_cast<int>(index / 4) * bits_of(type)};
}

struct Spread {
  float smallest;
  float largest;
  bool finite;
};
Spread spread_of(std::span<const float> values) {
  Spread spread{values.front(), values.front(), true};
  for (const float value : values) {
    spread.smallest = std::min(spread.smallest, value);
    spread.largest = std::max(spread.largest, value);
    spread.finite = spread.finite && std::isfinite(value);
  }
  return spread;
}

// To the nearest f16 that is finite.
Float16 saturated(float value) { return to_f16(std::clamp(value, -65504.0F, 65504.0F)); }

// With the range's minimum and scale.
void make_codes(std::span<const float> values, const KvGroupRange& range, float most,
                std::span<std::uint8_t> codes) {
  const float minimum = to_float(range.minimum);
  const float scale = to_float(range.scale);
  if (scale == 0.0F) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float code = std::clamp((values[i] - minimum) / scale, 0.0F, most);
    codes[i] = static_cast<std::uint8_t>(std::nearbyint(code));
  }
}

// The smallest power of two with which this magnitude, which is not 0, is at most kLargestE4m3, as
// far as f16 has it.
float e4m3_scale(float largest) {
  int exponent = 0;
  const float fraction = std::frexp(largest, &exponent);  // in [1/2, 1)
  static_assert(kLargestE4m3 == 0x1p9F * 0.875F);
  return std::ldexp(1.0F, std::clamp(exponent - (fraction > 0.875F ? 8 : 9), -24, 15));
}

KvGroupRange quantise_e4m3(std::span<const float> values, std::span<std::uint8_t> codes) {
  const Spread spread = spread_of(values);
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  if (!spread.finite) return {{kNan}, {}};
  const float largest = std::max(-spread.smallest, spread.largest);
  if (largest == 0.0F) return {};
  const float scale = e4m3_scale(largest);
  for (std::size_t i = 0; i < values.size(); ++i) codes[i] = to_e4m3(values[i] / scale).bits;
  return {.scale = to_f16(scale), .minimum = {}};
}

}  // namespace

unsigned most_code(KvType type) { return (1U << bits_of(type)) - 1; }

float value_of_code(KvType type, std::uint8_t code, const KvGroupRange& range) {
  const float scale = to_float(range.scale);
  if (type == KvType::kFp8) return to_float(Float8E4m3{code}) * scale;
  return static_cast<float>(code) * scale + to_float(range.minimum);
}

KvGroupRange quantise(KvType type, std::span<const float> values, std::span<std::uint8_t> codes) {
  if (type == KvType::kFp8) return quantise_e4m3(values, codes);
  const auto most = static_cast<float>(most_code(type));
  const Spread spread = spread_of(values);
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  if (!spread.finite) return {{kNan}, {kNan}};
  KvGroupRange range;
  range.minimum = rounded_down(spread.smallest);
  range.scale = rounded_up((spread.largest - to_float(range.minimum)) / most);
  make_codes(values, range, most, codes);
  return range;
}

KvGroupRange quantise_group(KvType type, std::span<const float> values,
                            std::span<std::uint8_t> codes) {
  const auto most = static_cast<float>(most_code(type));
  const Spread spread = spread_of(values);
  std::fill(codes.begin(), codes.end(), std::uint8_t{0});
  if (!spread.finite) return {{kNan}, {kNan}};
  const KvGroupRange range{.scale = saturated((spread.largest - spread.smallest) / most),
                           .minimum = saturated(spread.smallest)};
  make_codes(values, range, most, codes);
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

std::size_t k_range_index(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim) {
  return static_cast<std::size_t>(
      quantises_groups(shape.k_type) ? slot / kKvGroup * shape.head_dim + dim : slot);
}

std::size_t v_range_index(const KvBlockShape& shape, std::int64_t slot, std::int64_t dim) {
  return static_cast<std::size_t>(
      quantises_groups(shape.v_type) ? dim / kKvGroup * shape.block_size + slot : slot);
}

KvGroupRange read_range(const KvPartLayout& layout, const std::byte* part, std::size_t index) {
  KvGroupRange range;
  std::memcpy(&range.scale.bits, part + layout.scales_at() + 2 * index, 2);
  if (!layout.has_minima) return range;
  std::memcpy(&range.minimum.bits, part + layout.minima_at() + 2 * index, 2);
  return range;
}

void write_range(const KvPartLayout& layout, std::byte* part, std::size_t index,
                 const KvGroupRange& range) {
  std::memcpy(part + layout.scales_at() + 2 * index, &range.scale.bits, 2);
  if (!layout.has_minima) return;
  std::memcpy(part + layout.minima_at() + 2 * index, &range.minimum.bits, 2);
}

std::uint8_t read_code(KvType type, const std::byte* part, KvCodePlace place) {
  const auto byte = static_cast<unsigned>(part[place.byte]) >> place.shift;
  return static_cast<std::uint8_t>(byte & most_code(type));
}

void write_code(KvType type, std::byte* part, KvCodePlace place, std::uint8_t code) {
  const unsigned mask = most_code(type) << place.shift;
  const unsigned before = static_cast<unsigned>(part[place.byte]) & ~mask;
  part[place.byte] = static_cast<std::byte>(before | (unsigned{code} << place.shift));
}

}  // namespace longhaul
