// The weights of the layers that a worker serves, ready for the kernels. As the files have them,
// F32 and BF16 matrices are used where the file is mapped, without a copy, or are copied once into
// memory of huge pages (WeightFiles); F16 and F64 are converted to F32 once; where layers are int8
// (compressed-tensors), all matrices are; where they are fp8, their codes are used in the file and
// only the scales copied. Asked for another type, all are converted once; beside matrices of
// integers (kernels/int8_weights.h, int4_weights.h) the embedding table is bf16, beside those of
// fp8 (fp8_weights.h) lm_head too. For a GPU all are copied to its memory, one tensor after the
// other, so that the host never holds more than one that was converted; but q, k and v together,
// and gate and up, which lie together there, too. Every shape is checked against the ModelSpec.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/device/device_memory.h"
#include "base/ids.h"
#include "kernels/tensor.h"
#include "model/model_folder.h"
#include "model/model_spec.h"
#include "worker/weight_files.h"

namespace longhaul {

struct WeightMemory;

// Memory of the weights' device. Vectors that the model does not have are empty.
struct LayerWeights {
  std::span<const float> attention_norm;  // [d_model]
  WeightView q;                           // [n_heads * head_dim, d_model]
  WeightView k;                           // [n_kv_heads * head_dim, d_model]
  WeightView v;                           // [n_kv_heads * head_dim, d_model]
  WeightView o;                           // [d_model, n_heads * head_dim]
  std::span<const float> q_bias, k_bias, v_bias, o_bias;
  std::span<const float> q_norm, k_norm;  // [head_dim]
  std::span<const float> sink_logits;     // [n_heads]
  std::span<const float> ffn_norm;        // [d_model]
  WeightView gate;                        // [d_ff, d_model]
  WeightView up;                          // [d_ff, d_model]
  WeightView down;                        // [d_model, d_ff]
  std::span<const float> gate_bias, up_bias, down_bias;
};

// Immutable after construction: any number of threads may read it.
class Weights {
 public:
  // Layers [layers.begin, layers.end) of a Hugging Face folder; with the first layer the embedding,
  // with the last one the final norm and lm_head. `dtype` is that of the matrices: kF32, kBf16,
  // kI8, kI4, kF8E4m3, or as in the files; what enters products with those of fp8 is as it is, or
  // rounded as base/fp8_format.h says, which needs blocks of 128 x 128 (else kUnsupported). Throws
  // kCorruptData naming tensor, shape in the file and expected shape, or a tensor that nobody reads
  // (model/unread_tensors.h); kOutOfMemory, saying how much
  // of what is there, when a GPU's memory is full.
  static Weights load(const ModelFolder& folder, Extent layers,
                      std::optional<DType> dtype = std::nullopt, const DeviceId& device = {},
                      Fp8Inputs fp8_inputs = Fp8Inputs::kAsTheyAre,
                      WeightFiles files = WeightFiles::kMapped);
  static Weights load(const ModelFolder& folder, std::optional<DType> dtype = std::nullopt,
                      const DeviceId& device = {}, Fp8Inputs fp8_inputs = Fp8Inputs::kAsTheyAre,
                      WeightFiles files = WeightFiles::kMapped);  // all layers
  // Random weights of the right scale for tests and benchmarks: the same for the same seed, spec
  // and `dtype` (kF32, kBf16, kI8, kI4 or kF8E4m3) of the matrices, whichever layers are made.
  static Weights synthetic(const ModelSpec& spec, Extent layers, DType dtype, std::uint64_t seed,
                           const DeviceId& device = {});
  static Weights synthetic(const ModelSpec& spec, DType dtype, std::uint64_t seed,
                           const DeviceId& device = {});  // all layers

  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;
  ~Weights();

  const ModelSpec& spec() const { return spec_; }
  const DeviceId& device() const { return device_; }
  Extent layers() const { return layers_; }
  const LayerWeights& layer(LayerId layer) const {
    return layer_weights_[static_cast<std::size_t>(layer.value - layers_.begin)];
  }
  // [vocab_size, d_model]; what a stage does not need is empty, and so are final_norm and lm_head.
  const WeightView& embedding() const { return embedding_; }
  std::span<const float> final_norm() const { return final_norm_; }
  const WeightView& lm_head() const { return lm_head_; }  // [vocab_size, d_model]
  // Of the matrices, tied ones once; with the scales of integers and fp8.
  std::size_t matrix_bytes() const;

 private:
  class FolderSource;
  class SyntheticSource;
  template <typename Source>
  Weights(const ModelSpec& spec, Extent layers, const DeviceId& device, Source source);

  ModelSpec spec_;
  DeviceId device_;
  Extent layers_;
  std::vector<LayerWeights> layer_weights_;
  WeightView embedding_;
  std::span<const float> final_norm_;
  WeightView lm_head_;
  std::unique_ptr<WeightMemory> memory_;  // keeps alive what the views look at
};

// The sink logits of a KV head's query heads; empty where the model has none.
std::span<const float> sink_logits_of(const Weights& weights, LayerId layer, KvHeadId kv_head);

}  // namespace longhaul
