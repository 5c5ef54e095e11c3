// How the tensors of a model's weight files are named, in Hugging Face's words, and which of them a
// model has: what is read and what is known to be read follow from this. Pure.
#pragma once
#include <string_view>

#include "model/model_spec.h"

namespace longhaul {

inline constexpr const char* kEmbeddingTensor = "model.embed_tokens.weight";
inline constexpr const char* kFinalNormTensor = "model.norm.weight";
inline constexpr const char* kHeadTensor = "lm_head.weight";  // not beside tied embeddings

// Whether each layer of such a model has "model.layers.N." + `name`.
bool has_layer_tensor(const ModelSpec& spec, std::string_view name);

}  // namespace longhaul
