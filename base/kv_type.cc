#include "base/kv_type.h"

#include <fmt/format.h>

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
    case KvType::kKivi4:
      return "kivi4";
    case KvType::kKivi2:
      return "kivi2";
    case KvType::kFp8:
      return "fp8";
  }
  throw Error(ErrorCode::kInternal, "unknown KV type");
}

std::optional<KvType> kv_type_from(std::string_view name) {
  for (const KvType type : kAllKvTypes) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

std::string grouped_types(KvType k_type, KvType v_type) {
  std::string names;
  if (quantises_groups(k_type)) names = name_of(k_type);
  if (quantises_groups(v_type) && v_type != k_type)
    names += fmt::format("{}{}", names.empty() ? "" : " and ", name_of(v_type));
  return names;
}

KvType natural_kv_type(DType weight_dtype) {
  return weight_dtype == DType::kF32 ? KvType::kF32 : KvType::kBf16;
}

std::int64_t kv_lanes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 1;
    case KvType::kBf16:
      return 2;
    case KvType::kInt8:
    case KvType::kFp8:
      return 4;
    case KvType::kInt4:
    case KvType::kKivi4:
      return 8;
    case KvType::kKivi2:
      return 16;
  }
  throw Error(ErrorCode::kInternal, "unknown KV type");
}

std::int64_t kv_token_bytes(KvType type, std::int64_t head_dim) {
  const std::int64_t range_bytes = has_minima(type) ? 2 * 2 : 2;  // f16 each
  const std::int64_t n_ranges = quantises_groups(type) ? head_dim / kKvGroup
                                : is_quantised(type)   ? 1
                                                       : 0;
  return 4 * head_dim / kv_lanes(type) + n_ranges * range_bytes;
}

}  // namespace longhaul
