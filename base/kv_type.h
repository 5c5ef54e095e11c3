// Element types of cached keys and values.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace longhaul {

// Numbered because plans reach files; never renumber. int8 and int4 hold one group of head_dim
// unsigned codes per token and head, with a scale and a minimum in f16: value = code scale + min.
enum class KvType : std::uint8_t { kF32 = 0, kBf16 = 1, kInt8 = 2, kInt4 = 3 };

inline constexpr std::array kKvTypes = {KvType::kF32, KvType::kBf16, KvType::kInt8, KvType::kInt4};

std::string_view name_of(KvType type);  // "f32", "bf16", "int8", "int4"
std::optional<KvType> kv_type_from(std::string_view name);
// The type in which a cache keeps what a model with these weights computes.
KvType natural_kv_type(DType weight_dtype);

inline bool is_quantised(KvType type) { return type == KvType::kInt8 || type == KvType::kInt4; }

// Values of one token that one 32-bit word holds: 1, 2, 4 or 8.
std::int64_t kv_lanes(KvType type);
// Bytes of one token's K (or V) of one head, scale and minimum included. head_dim is a multiple of
// kv_lanes(type).
std::int64_t kv_token_bytes(KvType type, std::int64_t head_dim);

}  // namespace longhaul
