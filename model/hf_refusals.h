// The fields of config.json and generation_config.json that change results and that Longhaul does
// not have: one table, so that none is ignored by accident.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/config_fields.h"

namespace longhaul {

// Throws kUnsupported for the first field of config.json that asks for something Longhaul cannot
// do: experts, partial rotation, soft-capping, ...
void refuse_unsupported_model_fields(const ConfigFields& config);

// Whether the function above looks at this field.
bool is_refused_model_field(std::string_view name);

// The fields of generation_config.json that change what is sampled and that Longhaul does not have,
// as "repetition_penalty 1.05".
std::vector<std::string> unsupported_generation_fields(const ConfigFields& config);

}  // namespace longhaul
