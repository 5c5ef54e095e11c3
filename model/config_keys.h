// The names of config.json's fields: a field that nobody reads may be one that changes the model's
// mathematics, misspelt or of a newer release. Pure.
#pragma once
#include <string>
#include <vector>

#include "model/config_fields.h"

namespace longhaul {

// The fields that are neither read, nor refused by name (hf_refusals.h), nor known to change
// nothing, in the order of the file; those of rope_scaling and rope_parameters too
// ("rope_scaling.beta"). Throws kCorruptData with a suggestion for one that is nearly the name of a
// field that is read and missing: its default would be taken without a word.
std::vector<std::string> unknown_config_keys(const ConfigFields& config);

}  // namespace longhaul
