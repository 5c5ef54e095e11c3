// --weights: of which type the matrices are in memory.
#pragma once
#include <optional>
#include <string>

#include "base/dtype.h"
#include "model/model_folder.h"
#include "tools/cli_app.h"

namespace longhaul {

void add_weights_flag(CLI::App& app, std::string& weights, const std::string& group);

// What Weights::load takes: nothing for "auto".
std::optional<DType> asked_weights(const std::string& weights);

// As they will be in memory: asked for, or of the files if they are there, or as config.json says.
DType weights_in_memory(const std::string& weights, const ModelFolder& folder);

}  // namespace longhaul
