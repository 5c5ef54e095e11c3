// Writes small models as Hugging Face folders, with synthetic weights: for tests of loading, and
// for the reference model, which reads folders.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/model_spec.h"

namespace longhaul::test {

struct AddedTensor {
  std::string name;
  std::vector<float> values;
  std::vector<std::int64_t> shape;
};

struct ModelFiles {
  ModelSpec spec;             // model_type llama, or qwen3 (qk_norm; windows by layer_types)
  DType dtype = DType::kF32;  // of all tensors: kF32, kF16, kBf16 or kF64; kI8: the
                              // layers' matrices as compressed-tensors has them, the others f32;
                              // kF8E4m3: as Qwen3-*-FP8 has them, the others bf16
  std::uint64_t seed = 7;     // the values are those of Weights::synthetic(spec, kF32, seed)
  std::size_t n_header_spaces = 0;      // moves the data: 1 makes every tensor misaligned
  std::string left_out = {};            // a tensor that is not written
  std::vector<AddedTensor> added = {};  // written after those of the spec
};
void write_model(const std::filesystem::path& folder, const ModelFiles& files);

}  // namespace longhaul::test
