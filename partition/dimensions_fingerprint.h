// Names a model by its dimensions. Pure.
#pragma once
#include <string>

#include "model/model_spec.h"

namespace longhaul {

// FNV-1a (64 bits) of the dimensions' text, in hexadecimal: enough to refuse a plan of another
// model, not to tell two sets of weights apart.
std::string dimensions_fingerprint(const ModelSpec& spec);

}  // namespace longhaul
