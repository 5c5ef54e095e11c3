#include "worker/snapshot/convert_rows.h"

#include <cstring>
#include <span>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/kv_quantise.h"

namespace longhaul {
namespace {

template <typename T>
T at(const std::vector<std::byte>& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(T));
}

// Which scale and minimum are those of a code.
std::size_t range_of(const RowConversion& c, std::size_t token, std::size_t d, std::size_t n_dims) {
  constexpr auto kGroup = static_cast<std::size_t>(kKvGroup);
  if (!quantises_groups(c.from)) return token;
  return c.side == KvSide::kKeys ? token / kGroup * n_dims + d
                                 : token * (n_dims / kGroup) + d / kGroup;
}

// Code number i of rows that have one after the other, the first in a byte's lowest bits.
std::uint8_t code_at(const CacheRows& rows, KvType type, std::size_t i) {
  const auto n_bits = static_cast<std::size_t>(32 / kv_lanes(type));
  const std::size_t n_in_byte = 8 / n_bits;
  const unsigned byte = at<std::uint8_t>(rows.values, i / n_in_byte);
  return static_cast<std::uint8_t>(byte >> (i % n_in_byte * n_bits) & ((1U << n_bits) - 1));
}

void read_row(const CacheRows& rows, const RowConversion& c, std::size_t token,
              std::span<float> values) {
  const std::size_t n = values.size();
  for (std::size_t d = 0; d < n; ++d) {
    const std::size_t i = token * n + d;
    switch (c.from) {
      case KvType::kF32:
        values[d] = at<float>(rows.values, i);
        break;
      case KvType::kBf16:
        values[d] = to_float(at<BFloat16>(rows.values, i));
        break;
      case KvType::kInt8:
      case KvType::kFp8:
      case KvType::kInt4:
      case KvType::kKivi4:
      case KvType::kKivi2: {
        const std::size_t index = range_of(c, token, d, n);
        const KvGroupRange range{
            .scale = at<Float16>(rows.scales, index),
            .minimum = has_minima(c.from) ? at<Float16>(rows.minima, index) : Float16{}};
        values[d] = value_of_code(c.from, code_at(rows, c.from, i), range);
        break;
      }
    }
  }
}

void add_row(std::span<const float> values, KvType type, std::vector<std::uint8_t>& codes,
             CacheRows& rows) {
  switch (type) {
    case KvType::kF32:
      for (const float value : values) append(rows.values, value);
      return;
    case KvType::kBf16:
      for (const float value : values) append(rows.values, to_bf16(value));
      return;
    case KvType::kInt8:
    case KvType::kFp8:
    case KvType::kInt4:
      break;
    case KvType::kKivi4:
    case KvType::kKivi2:
      throw Error(ErrorCode::kInternal, "rows of tokens do not become groups of tokens");
  }
  codes.resize(values.size());
  const KvGroupRange range = quantise(type, values, codes);
  append(rows.scales, range.scale);
  if (has_minima(type)) append(rows.minima, range.minimum);
  if (type != KvType::kInt4) {
    for (const std::uint8_t code : codes) append(rows.values, code);
    return;
  }
  for (std::size_t d = 0; d < codes.size(); d += 2)
    append(rows.values, static_cast<std::uint8_t>(codes[d] | codes[d + 1] << 4));
}

}  // namespace

CacheRows convert_rows(CacheRows rows, const RowConversion& conversion, std::int64_t n_tokens,
                       std::int64_t head_dim) {
  if (conversion.from == conversion.to) return rows;
  CacheRows converted;
  std::vector<float> values(static_cast<std::size_t>(head_dim));
  std::vector<std::uint8_t> codes;
  for (std::int64_t token = 0; token < n_tokens; ++token) {
    read_row(rows, conversion, static_cast<std::size_t>(token), values);
    add_row(values, conversion.to, codes, converted);
  }
  return converted;
}

}  // namespace longhaul
