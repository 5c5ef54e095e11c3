// Reads the RoPE fields of config.json into a ModelSpec: the older `rope_theta` + `rope_scaling`
// and the newer `rope_parameters`.
#pragma once
#include "model/config_fields.h"
#include "model/model_spec.h"

namespace longhaul {

// Sets rope_theta and rope_scaling; max_seq_len must be set before. Throws kCorruptData, or
// kUnsupported for kinds of scaling that Longhaul does not have.
void read_rope(const ConfigFields& config, ModelSpec& spec);

}  // namespace longhaul
