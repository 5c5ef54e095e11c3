// Which types of weights a model can be computed with, and on what. Pure.
#pragma once
#include <optional>
#include <string>

#include "base/device/device.h"
#include "base/dtype.h"
#include "model/model_spec.h"

namespace longhaul {

// Why matrices of this type cannot be computed with there, and what to do; none where they can.
std::optional<std::string> why_not_weights(const ModelSpec& spec, DType weights, Device device);

// Throws kUnsupported with that reason.
void require_weights(const ModelSpec& spec, DType weights, Device device);

}  // namespace longhaul
