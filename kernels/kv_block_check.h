// Which block shapes the kernels can read and write. For operators only.
#pragma once
#include <string_view>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/kv_block.h"

namespace longhaul {

inline void check_kv_block_shape(std::string_view op, const KvBlockShape& shape) {
  const auto supported = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16; };
  if (!supported(shape.k_dtype) || !supported(shape.v_dtype)) [[unlikely]] {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: K of type {} and V of type {}; only f32 and bf16", op,
                            name_of(shape.k_dtype), name_of(shape.v_dtype)));
  }
  if (shape.block_size <= 0 || shape.block_size % 16 != 0) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: block_size is {}, must be a positive multiple of 16", op,
                            shape.block_size));
  }
  if (shape.head_dim < 8 || shape.head_dim % 2 != 0) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: head_dim is {}, must be even and at least 8", op, shape.head_dim));
  }
}

}  // namespace longhaul
