// The forms of quantised weight files that are read, by config.json's quantization_config; any
// other is refused by name.
//
//   compressed-tensors, int-quantized    int8, a scale for each output, name_scale F32 [n_out, 1]
//   fp8 (DeepSeek-V3, Qwen3-*-FP8)       E4M3, a scale for each block of weight_block_size,
//                                        name_scale_inv [blocks of outputs, blocks of inputs], or
//                                        without weight_block_size one for each matrix
//   compressed-tensors, float-quantized  E4M3, name_scale for each matrix (strategy tensor), output
//                                        (channel) or block (block)
//
// Every scale is what its codes are multiplied with, whatever the name says. What they say of
// activations (dynamic, static) is a choice of the machine that they were made for: here nothing
// but weights is quantised. modules_to_not_convert and ignore are not read: a tensor's type says
// whether it is quantised.
#pragma once
#include <cstdint>
#include <optional>

#include "model/config_fields.h"

namespace longhaul {

// Which weights of a matrix share a scale; 0: all of its outputs, or inputs.
struct Fp8Files {
  std::int64_t block_out = 0;
  std::int64_t block_in = 0;
  bool operator==(const Fp8Files&) const = default;
};

// None for weights that are not fp8. Throws kUnsupported for what is not read.
std::optional<Fp8Files> read_quantised_form(const ConfigFields& config);

}  // namespace longhaul
