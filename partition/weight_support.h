// Which types of weights a model can be computed with. Pure.
#pragma once
#include <optional>
#include <string>

#include "base/dtype.h"
#include "model/model_spec.h"

namespace longhaul {

// Why matrices of this type cannot be computed with, and what to do; none where they can.
std::optional<std::string> why_not_weights(const ModelSpec& spec, DType weights);

// Throws kInvalidArgument with that reason.
void require_weights(const ModelSpec& spec, DType weights);

}  // namespace longhaul
