#include "partition/kv_format.h"

#include "base/error.h"

namespace longhaul {

std::string_view name_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kBf16:
      return "bf16";
    case KvType::kInt8:
      return "int8";
    case KvType::kInt4:
      return "int4";
  }
  throw Error(ErrorCode::kInternal, "unknown KV type");
}

std::optional<KvType> kv_type_from(std::string_view name) {
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8, KvType::kInt4}) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

std::int64_t kv_token_bytes(KvType type, std::int64_t head_dim) {
  constexpr std::int64_t kScaleAndMinimum = 2 * 2;  // f16 each
  switch (type) {
    case KvType::kF32:
      return 4 * head_dim;
    case KvType::kBf16:
      return 2 * head_dim;
    case KvType::kInt8:
      return head_dim + kScaleAndMinimum;
    case KvType::kInt4:
      return (head_dim + 1) / 2 + kScaleAndMinimum;
  }
  throw Error(ErrorCode::kInternal, "unknown KV type");
}

}  // namespace longhaul
