// The form in which a plan counts keys and values: element types and the block, which is the unit
// of cache memory and of transfer. Plain data; the layout inside a block is the kernels' business.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul {

// Numbered because plans reach files; never renumber. int8 and int4 hold one group of head_dim
// values per token and head, with a scale and a minimum in f16.
enum class KvType : std::uint8_t { kF32 = 0, kBf16 = 1, kInt8 = 2, kInt4 = 3 };

std::string_view name_of(KvType type);  // "f32", "bf16", "int8", "int4"
std::optional<KvType> kv_type_from(std::string_view name);

// Bytes of one token's K (or V) of one head, scale and minimum included.
std::int64_t kv_token_bytes(KvType type, std::int64_t head_dim);

struct KvFormat {
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  std::int64_t block_size = 64;  // tokens
  std::int64_t head_dim = 0;

  // K and V of one token of one KV head.
  std::int64_t token_bytes() const {
    return kv_token_bytes(k_type, head_dim) + kv_token_bytes(v_type, head_dim);
  }
  std::int64_t block_bytes() const { return block_size * token_bytes(); }
  bool operator==(const KvFormat&) const = default;
};

}  // namespace longhaul
