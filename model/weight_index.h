// Reads model.safetensors.index.json: which file of a sharded model holds which tensor.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace longhaul {

inline constexpr const char* kWeightIndexFile = "model.safetensors.index.json";

using WeightIndex = std::map<std::string, std::string, std::less<>>;  // tensor -> file name

// Throws kCorruptData with `source` and field. File names are plain names ending in .safetensors:
// '/', '\\', '..' and control characters are refused.
WeightIndex parse_weight_index(std::string_view text, std::string_view source);

}  // namespace longhaul
