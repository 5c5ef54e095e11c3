// Tensors in a model's weight files that nobody reads: of more layers than config.json counts, of
// biases, norms or scales that it says nothing of, or of another model. Left out in silence they
// would make answers of a model that was never trained.
#pragma once
#include <string>
#include <vector>

#include "model/model_folder.h"

namespace longhaul {

// The tensors that are neither read by a whole model of this config.json, nor known to change
// nothing (buffers of old files, scales of activations and caches, biases of zeros, a second copy
// of tied embeddings), in ascending order. Reads headers, and the bytes of few tensors; the same on
// all ranks, whatever layers they serve. Throws kCorruptData naming file, tensor and the likely
// field of config.json for one that belongs to the layers, or is a bias or a norm: it would change
// what the model computes.
std::vector<std::string> unread_tensors(const ModelFolder& folder);

// Whether config.json ties the output head to the embedding, and the files hold a head that is not
// the embedding.
bool has_another_head_than_the_embedding(const ModelFolder& folder);

}  // namespace longhaul
