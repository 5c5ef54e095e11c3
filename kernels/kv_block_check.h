// Which block shapes the kernels can read and write.
#pragma once
#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include "base/device/device.h"
#include "base/error.h"
#include "kernels/kv_block.h"

namespace longhaul {

inline void check_kv_block_shape(std::string_view op, const KvBlockShape& shape) {
  if (shape.block_size <= 0 || shape.block_size % 16 != 0) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: block_size is {}, must be a positive multiple of 16", op,
                            shape.block_size));
  }
  const std::int64_t lanes =
      std::max<std::int64_t>(2, std::max(kv_lanes(shape.k_type), kv_lanes(shape.v_type)));
  constexpr std::int64_t kMostCodes = 256;  // whose products 32 bits can sum
  if (lanes > 2 && shape.head_dim > kMostCodes) [[unlikely]] {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: head_dim is {}; K of {} and V of {} can be at most {} wide", op,
                    shape.head_dim, name_of(shape.k_type), name_of(shape.v_type), kMostCodes));
  }
  if (shape.quantises_groups() &&
      (shape.block_size % kKvGroup != 0 || shape.head_dim % kKvGroup != 0)) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: caches of {} have groups of {} tokens and channels, but blocks "
                            "have {} tokens and heads {} dimensions; both must be multiples of it",
                            op, grouped_types(shape.k_type, shape.v_type), kKvGroup,
                            shape.block_size, shape.head_dim));
  }
  if (shape.head_dim < 8 || shape.head_dim % lanes != 0) [[unlikely]] {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: head_dim is {}; with K of {} and V of {} it must be a multiple of "
                    "{} and at least 8",
                    op, shape.head_dim, name_of(shape.k_type), name_of(shape.v_type), lanes));
  }
}

// For operators that take single tokens, which groups have not: CPUs read groups there, too, GPUs
// do not.
inline void require_cpu_for_groups(std::string_view op, Device device, const KvBlockShape& shape) {
  if (device == Device::kCpu || !shape.quantises_groups()) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}: of caches of {} GPUs take whole blocks only", op,
                          grouped_types(shape.k_type, shape.v_type)));
}

}  // namespace longhaul
