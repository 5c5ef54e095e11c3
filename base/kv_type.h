// Element types of cached keys and values.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace longhaul {

// Numbered because plans reach files; never renumber. Types of codes hold groups of unsigned codes,
// each group with a scale and a minimum in f16: value = code scale + min. A group of int8 and int4
// is one token's head_dim values. Groups of kivi4 and kivi2 (KIVI, Liu et al. 2024, arXiv
// 2402.02750, section 3) have kKvGroup values: of keys one channel of neighbouring tokens, of
// values neighbouring channels of one token; 4 and 2 bits. Codes of fp8 are E4M3 (base/dtype.h) and
// have no minimum: value = E4M3 value scale, where the scale of one token's head_dim values is a
// power of two.
enum class KvType : std::uint8_t {
  kF32 = 0,
  kBf16 = 1,
  kInt8 = 2,
  kInt4 = 3,
  kKivi4 = 4,
  kKivi2 = 5,
  kFp8 = 6
};

// Those that tokens are written in one by one.
inline constexpr std::array kPlainKvTypes = {KvType::kF32, KvType::kBf16, KvType::kInt8,
                                             KvType::kFp8, KvType::kInt4};
// Those that quantise groups of tokens, which must be whole before they are written.
inline constexpr std::array kGroupedKvTypes = {KvType::kKivi4, KvType::kKivi2};
inline constexpr std::int64_t kKvGroup = 32;  // values of one of their groups
// Both.
inline constexpr std::array kAllKvTypes = {KvType::kF32,  KvType::kBf16, KvType::kInt8,
                                           KvType::kFp8,  KvType::kInt4, KvType::kKivi4,
                                           KvType::kKivi2};

std::string_view name_of(KvType type);  // "f32", "bf16", "int8", "fp8", "int4", "kivi4", "kivi2"
std::optional<KvType> kv_type_from(std::string_view name);
// The type in which a cache keeps what a model with these weights computes.
KvType natural_kv_type(DType weight_dtype);

inline bool quantises_groups(KvType type) {
  return type == KvType::kKivi4 || type == KvType::kKivi2;
}
// Those of a cache's two types that do, for messages: "kivi4", "kivi4 and kivi2"; "" where none
// does.
std::string grouped_types(KvType k_type, KvType v_type);
inline bool is_quantised(KvType type) { return type != KvType::kF32 && type != KvType::kBf16; }
// Whether quantised groups have a minimum beside their scale.
inline bool has_minima(KvType type) { return is_quantised(type) && type != KvType::kFp8; }

// Values that one 32-bit word holds: 1, 2, 4, 8 or 16.
std::int64_t kv_lanes(KvType type);
// Bytes of one token's K (or V) of one head, scales and minima included (its share of them where
// tokens have them together). head_dim is a multiple of kv_lanes(type), and of kKvGroup for types
// that quantise groups.
std::int64_t kv_token_bytes(KvType type, std::int64_t head_dim);

}  // namespace longhaul
