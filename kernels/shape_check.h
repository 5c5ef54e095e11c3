// Checks of arguments that every operator makes, with the values in the message. For operators
// only.
#pragma once
#include <concepts>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/tensor.h"

namespace longhaul {

// Messages and names may be functions, called only where something is wrong: a decode step has very
// many items.
template <std::invocable Message>
void require(bool ok, Message message, ErrorCode code = ErrorCode::kInvalidArgument) {
  if (!ok) [[unlikely]]
    throw Error(code, message());
}

// "rms_norm: width of out is 3, must be 4".
inline void require_equal(std::string_view op, std::string_view what, std::int64_t got,
                          std::int64_t want) {
  if (got != want) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} is {}, must be {}", op, what, got, want));
  }
}

template <std::invocable Name>
void require_equal(Name op, std::string_view what, std::int64_t got, std::int64_t want) {
  if (got != want) [[unlikely]]
    require_equal(op(), what, got, want);
}

inline void require_float_weight(std::string_view op, const WeightView& weight) {
  if (weight.dtype != DType::kF32 && weight.dtype != DType::kBf16) [[unlikely]] {
    throw Error(ErrorCode::kUnsupported, fmt::format("{}: weights of type {}; only f32 and bf16",
                                                     op, name_of(weight.dtype)));
  }
}

}  // namespace longhaul
