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

// The fields of generation_config.json that change answers, greedy ones too, and that Longhaul does
// not have, as "no_repeat_ngram_size 3"; and those that change only how tokens are drawn.
std::vector<std::string> unsupported_generation_fields(const ConfigFields& config);
std::vector<std::string> unsupported_sampling_fields(const ConfigFields& config);

// Its fields that nobody knows and that are nearly the name of one, as "temprature (did you mean
// temperature?)".
std::vector<std::string> misspelt_generation_fields(const ConfigFields& config);

}  // namespace longhaul
