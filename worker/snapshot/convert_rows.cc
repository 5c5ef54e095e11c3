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

void read_row(const CacheRows& rows, KvType type, std::size_t token, std::span<float> values) {
  const std::size_t n = values.size();
  for (std::size_t d = 0; d < n; ++d) {
    const std::size_t i = token * n + d;
    switch (type) {
      case KvType::kF32:
        values[d] = at<float>(rows.values, i);
        break;
      case KvType::kBf16:
        values[d] = to_float(at<BFloat16>(rows.values, i));
        break;
      case KvType::kInt8:
      case KvType::kInt4: {
        unsigned code = at<std::uint8_t>(rows.values, type == KvType::kInt8 ? i : i / 2);
        if (type == KvType::kInt4) code = i % 2 == 0 ? code & 15U : code >> 4;
        values[d] = static_cast<float>(code) * to_float(at<Float16>(rows.scales, token)) +
                    to_float(at<Float16>(rows.minima, token));
        break;
      }
      case KvType::kKivi4:
      case KvType::kKivi2:
        throw Error(ErrorCode::kInternal, "rows of files hold no groups of tokens");
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
    case KvType::kInt4:
      break;
    case KvType::kKivi4:
    case KvType::kKivi2:
      throw Error(ErrorCode::kInternal, "rows of files hold no groups of tokens");
  }
  codes.resize(values.size());
  const KvGroupRange range = quantise(type, values, codes);
  append(rows.scales, range.scale);
  append(rows.minima, range.minimum);
  if (type == KvType::kInt8) {
    for (const std::uint8_t code : codes) append(rows.values, code);
    return;
  }
  for (std::size_t d = 0; d < codes.size(); d += 2)
    append(rows.values, static_cast<std::uint8_t>(codes[d] | codes[d + 1] << 4));
}

}  // namespace

CacheRows convert_rows(CacheRows rows, KvType from, KvType to, std::int64_t n_tokens,
                       std::int64_t head_dim) {
  if (from == to) return rows;
  CacheRows converted;
  std::vector<float> values(static_cast<std::size_t>(head_dim));
  std::vector<std::uint8_t> codes;
  for (std::int64_t token = 0; token < n_tokens; ++token) {
    read_row(rows, from, static_cast<std::size_t>(token), values);
    add_row(values, to, codes, converted);
  }
  return converted;
}

}  // namespace longhaul
