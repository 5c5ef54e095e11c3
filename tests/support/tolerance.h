// The one table of numerical tolerances: what a result may differ from its double-precision
// reference, by the type that it was computed from. An element passes when |got - want| <= absolute
// + relative * |want|; a tensor also needs the cosine.
#pragma once
#include "base/device/device.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/kv_type.h"
#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/isa.h"

namespace longhaul::test {

struct Tolerance {
  double absolute = 0;
  double relative = 0;
  double min_cosine = 0;
};

// One operator.
inline Tolerance operator_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {1e-5, 1e-5, 1 - 1e-9};
    case DType::kBf16:
      return {2e-2, 2e-2, 1 - 1e-4};
    case DType::kF16:
      return {3e-3, 3e-3, 1 - 1e-6};
    case DType::kI8:
    case DType::kI4:
    case DType::kF8E4m3:
    case DType::kF64:
      break;
  }
  throw Error(ErrorCode::kInternal, "no tolerance for this dtype");
}

// Whether products of attention over fp8 round queries and probabilities to bf16, or K and V become
// floats, exactly.
inline bool rounds_beside_fp8(Device device) {
  return device != Device::kCpu || (bf16_pairs() && active_isa() >= Isa::kAvx512Bf16);
}

// Attention over a cache whose K or V has this type, beside a reference over the values that the
// cache stands for. Over codes, queries and weights are rounded to integers of 16 bits, on GPUs and
// by AMX to bf16.
inline Tolerance attention_tolerance(KvType type, Device device) {
  switch (type) {
    case KvType::kF32:
      return operator_tolerance(DType::kF32);
    case KvType::kFp8:
      return operator_tolerance(rounds_beside_fp8(device) ? DType::kBf16 : DType::kF32);
    case KvType::kKivi4:  // on CPUs made floats, exactly
    case KvType::kKivi2:
      return operator_tolerance(device == Device::kCpu ? DType::kF32 : DType::kBf16);
    case KvType::kBf16:
      return operator_tolerance(DType::kBf16);
    case KvType::kInt8:
    case KvType::kInt4:
      return device == Device::kCpu && active_isa() != Isa::kAmx ? Tolerance{3e-4, 3e-4, 1 - 1e-7}
                                                                 : operator_tolerance(DType::kBf16);
  }
  throw Error(ErrorCode::kInternal, "no tolerance for this type");
}

// Logits of a whole model whose weights and caches have this type, between two ways of computing
// the same thing (chunk lengths, ranks, plans, restarts).
inline Tolerance logits_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {2e-4, 2e-4, 1 - 1e-8};
    case DType::kBf16:
    case DType::kF8E4m3:  // the head's products are of bf16
      return {1e-1, 5e-2, 1 - 1e-3};
    // Activations that differ by a float's rounding may be rounded to neighbouring integers.
    case DType::kI8:
    case DType::kI4:
      return {1e-1, 5e-2, 1 - 1e-3};
    case DType::kF16:
    case DType::kF64:
      break;
  }
  throw Error(ErrorCode::kInternal, "no tolerance for this dtype");
}

}  // namespace longhaul::test
