// Published models as dimensions, so that their speed can be measured without their weights. Pure
// but for model_shape, which may read a config.json.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_spec.h"

namespace longhaul::bench {

struct ModelShape {
  std::string name;
  ModelSpec spec;  // weight_dtype is kBf16 for the named ones
};

std::vector<std::string> shape_names();
// One of shape_names() (in any case), or a config.json, or a folder with one. Throws
// kInvalidArgument naming the known ones, and what parse_hf_config throws.
ModelShape model_shape(std::string_view name_or_path);

// The first n_layers layers of a model. Throws kInvalidArgument for fewer than 1 or more than it
// has.
ModelSpec with_layers(const ModelSpec& spec, std::int64_t n_layers);

// Weights, biases and norms; tied matrices once.
std::int64_t n_parameters(const ModelSpec& spec);

}  // namespace longhaul::bench
