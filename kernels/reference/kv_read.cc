#include "kernels/reference/kv_read.h"

#include <cstring>

#include "kernels/kv_block_check.h"
#include "kernels/kv_quantise.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

float element(KvType type, const std::byte* data, std::int64_t index) {
  if (type == KvType::kF32) {
    float out;
    std::memcpy(&out, data + index * 4, sizeof out);
    return out;
  }
  BFloat16 out;
  std::memcpy(&out.bits, data + index * 2, sizeof out.bits);
  return to_float(out);
}

float quantised_element(const KvBlockShape& shape, KvType type, const std::byte* part,
                        std::size_t range_index, KvCodePlace place) {
  const KvGroupRange range = read_range(shape.part(type), part, range_index);
  return value_of_code(type, read_code(type, part, place), range);
}

void check_read(const KvBlockShape& shape, std::int64_t first_slot,
                const TensorView<float, 2>& out) {
  check_kv_block_shape("kv_read", shape);
  require_equal("kv_read", "head_dim of out", out.dim(1), shape.head_dim);
  require(first_slot >= 0 && first_slot + out.dim(0) <= shape.block_size,
          fmt::format("kv_read: slots [{}, {}) of a block of {}", first_slot,
                      first_slot + out.dim(0), shape.block_size));
}

}  // namespace

void kv_read_k(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out) {
  check_read(shape, first_slot, out);
  const std::int64_t lanes = kv_lanes(shape.k_type);
  for (std::int64_t token = 0; token < out.dim(0); ++token) {
    const std::int64_t slot = first_slot + token;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const std::int64_t word = d / lanes * shape.block_size + slot;
      out[token][d] =
          is_quantised(shape.k_type)
              ? quantised_element(shape, shape.k_type, block, k_range_index(shape, slot, d),
                                  k_code_place(shape, slot, d))
              : element(shape.k_type, block, word * lanes + d % lanes);
    }
  }
}

void kv_read_v(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out) {
  check_read(shape, first_slot, out);
  const std::byte* part = block + shape.k_bytes();
  const std::int64_t lanes = kv_lanes(shape.v_type);
  for (std::int64_t token = 0; token < out.dim(0); ++token) {
    const std::int64_t slot = first_slot + token;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const std::int64_t word = slot / lanes * shape.head_dim + d;
      out[token][d] =
          is_quantised(shape.v_type)
              ? quantised_element(shape, shape.v_type, part, v_range_index(shape, slot, d),
                                  v_code_place(shape, slot, d))
              : element(shape.v_type, part, word * lanes + slot % lanes);
    }
  }
}

}  // namespace longhaul
