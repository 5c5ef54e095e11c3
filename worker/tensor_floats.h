// Tensors of files as floats, where weights are loaded.
#pragma once
#include <span>

#include "model/safetensors.h"

namespace longhaul {

// All elements; out has as many. Throws kUnsupported for types that need scales, which say nothing
// by themselves.
void to_floats(const TensorBytes& tensor, std::span<float> out);

}  // namespace longhaul
