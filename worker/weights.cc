#include "worker/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/split_mix.h"
#include "kernels/fp8_weights.h"
#include "kernels/int8_weights.h"
#include "model/tensor_names.h"
#include "model/unread_tensors.h"
#include "worker/fp8_tensor.h"
#include "worker/tensor_floats.h"
#include "worker/weight_memory.h"

namespace longhaul {
namespace {

std::optional<DType> of_table(std::optional<DType> dtype) {
  return dtype ? std::optional(table_type(*dtype)) : dtype;
}
std::optional<DType> of_head(std::optional<DType> dtype) {
  return dtype ? std::optional(head_type(*dtype)) : dtype;
}

}  // namespace

// Sources give tensors by their Hugging Face names, and the memory that they lie in.

class Weights::FolderSource {
 public:
  FolderSource(const ModelFolder& folder, std::optional<DType> dtype, Fp8Inputs fp8_inputs,
               WeightFiles files)
      : dtype_(dtype), fp8_inputs_(fp8_inputs), files_(files) {
    memory->folder = folder;
    const std::optional<DType> in_files = folder.matrix_type();
    if (dtype || !in_files) return;
    if (in_files == DType::kI8 || in_files == DType::kF8E4m3) dtype_ = in_files;
    is_as_in_files_ = true;
  }
  std::unique_ptr<WeightMemory> memory = std::make_unique<WeightMemory>();

  WeightView matrix(const std::string& name, const Int8Shape& shape) {
    if (is_as_in_files_ && dtype_ == DType::kF8E4m3) require_fp8(name);
    WeightView view = read(name, shape, dtype_);
    if (fp8_inputs_ == Fp8Inputs::kQuantised) {
      if (view.fp8 != Fp8Layout{}) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{}: tensor {} has a scale for each {} x {} weights; inputs are "
                                "rounded to fp8 beside blocks of 128 x 128 only",
                                memory->folder->path().string(), name, view.fp8.block_out,
                                view.fp8.block_in));
      }
      view.fp8.inputs = fp8_inputs_;
    }
    return view;
  }
  WeightView table(const std::string& name, const Int8Shape& shape) {
    return read(name, shape, of_table(dtype_));
  }
  WeightView head(const std::string& name, const Int8Shape& shape) {
    return read(name, shape, of_head(dtype_));
  }

  std::vector<float> vector(const std::string& name, std::int64_t n) {
    const TensorBytes tensor = checked(name, {n});
    std::vector<float> out(static_cast<std::size_t>(n));
    to_floats(tensor, out);
    return out;
  }

 private:
  WeightView read(const std::string& name, const Int8Shape& shape, std::optional<DType> dtype) {
    const TensorBytes tensor = checked(name, {shape.n_out, shape.n_in});
    const std::byte* data = tensor.bytes.data();
    const std::size_t element_bytes = size_of(tensor.dtype);
    const bool is_usable = tensor.dtype == DType::kF32 || tensor.dtype == DType::kBf16;
    // safetensors does not promise alignment.
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % element_bytes == 0;
    if (is_usable && is_aligned && dtype.value_or(tensor.dtype) == tensor.dtype) {
      return {.data = in_place(tensor.bytes),
              .dtype = tensor.dtype,
              .n_out = shape.n_out,
              .n_in = shape.n_in};
    }
    if (tensor.dtype == DType::kI8) return read_int8(name, tensor, shape, dtype);
    if (tensor.dtype == DType::kF8E4m3) return read_fp8(name, shape, dtype);
    const auto n_in = static_cast<std::size_t>(shape.n_in);
    const auto read_row = [&](std::int64_t output, float* out) {
      TensorBytes row = tensor;
      const std::size_t row_bytes = n_in * element_bytes;
      row.bytes = tensor.bytes.subspan(static_cast<std::size_t>(output) * row_bytes, row_bytes);
      to_floats(row, {out, n_in});
    };
    try {
      return memory->hold(dtype.value_or(DType::kF32), shape, read_row);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: tensor {}: {}", memory->folder->path().string(),
                                            name, error.what()));
    }
  }

  // Where products find bytes of a file that they take as they are.
  const std::byte* in_place(std::span<const std::byte> bytes) {
    if (files_ == WeightFiles::kMapped) return bytes.data();
    return memory->copy(bytes);
  }

  WeightView read_fp8(const std::string& name, const Int8Shape& shape, std::optional<DType> dtype) {
    Fp8Tensor tensor(*memory->folder, name, shape.n_out, shape.n_in);
    if (dtype.value_or(DType::kF8E4m3) == DType::kF8E4m3) {
      WeightView view = memory->fp8_files.emplace_back(std::move(tensor)).view();
      view.data = in_place({static_cast<const std::byte*>(view.data),
                            static_cast<std::size_t>(shape.n_out * shape.n_in)});
      return view;
    }
    return memory->hold(*dtype, shape, [&](std::int64_t output, float* row) {
      for (std::int64_t i = 0; i < shape.n_in; ++i) row[i] = fp8_weight(tensor.view(), output, i);
    });
  }

  // Whoever left a matrix out of the conversion to fp8 had a reason: it is not converted unasked.
  void require_fp8(const std::string& name) const {
    const DType dtype = memory->folder->tensor(name).dtype;
    if (dtype == DType::kF8E4m3) return;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: tensor {} is {} where other matrices of layers are fp8; layers of "
                            "both kinds are not supported: give --weights bf16, int8 or fp8, which "
                            "makes all of them one type",
                            memory->folder->path().string(), name, name_of(dtype)));
  }

  // Integers with a scale for each output in a tensor of its own, as compressed-tensors has them.
  WeightView read_int8(const std::string& name, const TensorBytes& tensor, const Int8Shape& shape,
                       std::optional<DType> dtype) {
    std::vector<float> scales(static_cast<std::size_t>(shape.n_out));
    to_floats(checked(name + "_scale", {shape.n_out, 1}), scales);
    for (const float scale : scales) {
      if (std::isfinite(scale) && scale >= 0) continue;
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: tensor {}_scale has a scale of {}",
                              memory->folder->path().string(), name, scale));
    }
    const auto* integers = reinterpret_cast<const std::int8_t*>(tensor.bytes.data());
    const auto scale_of = [&](std::int64_t output) {
      return scales[static_cast<std::size_t>(output)];
    };
    if (dtype.value_or(DType::kI8) != DType::kI8) {
      return memory->hold(*dtype, shape, [&](std::int64_t output, float* row) {
        for (std::int64_t i = 0; i < shape.n_in; ++i)
          row[i] = scale_of(output) * static_cast<float>(integers[output * shape.n_in + i]);
      });
    }
    const auto read_row = [&](std::int64_t output, std::int8_t* row) {
      std::memcpy(row, integers + output * shape.n_in, static_cast<std::size_t>(shape.n_in));
    };
    return memory->int8s.emplace_back(Int8Matrix::pack(shape, read_row, scale_of)).view();
  }

  TensorBytes checked(const std::string& name, const std::vector<std::int64_t>& shape) const {
    TensorBytes tensor = memory->folder->tensor(name);
    if (tensor.shape != shape) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: tensor {} has shape [{}], config.json makes it [{}]",
                              memory->folder->path().string(), name, fmt::join(tensor.shape, ", "),
                              fmt::join(shape, ", ")));
    }
    return tensor;
  }

  std::optional<DType> dtype_;
  Fp8Inputs fp8_inputs_;
  WeightFiles files_;
  bool is_as_in_files_ = false;
};

// Uniform numbers: matrices with variance 1 / n_in, norms around 1, small biases. A tensor depends
// on the seed and its name only, so that a part of a model has the same weights as the whole.
class Weights::SyntheticSource {
 public:
  SyntheticSource(DType dtype, std::uint64_t seed) : dtype_(dtype), seed_(seed) {}
  std::unique_ptr<WeightMemory> memory = std::make_unique<WeightMemory>();

  WeightView matrix(const std::string& name, const Int8Shape& shape) {
    return make(name, shape, dtype_);
  }
  WeightView table(const std::string& name, const Int8Shape& shape) {
    return make(name, shape, table_type(dtype_));
  }
  WeightView head(const std::string& name, const Int8Shape& shape) {
    return make(name, shape, head_type(dtype_));
  }

  std::vector<float> vector(const std::string& name, std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    const float middle = name.ends_with("norm.weight") ? 1.0F : 0.0F;
    fill({0, n}, stream_of(name),
         [&](std::int64_t i, float u) { out[static_cast<std::size_t>(i)] = middle + 0.2F * u; });
    return out;
  }

 private:
  WeightView make(const std::string& name, const Int8Shape& shape, DType dtype) {
    const std::uint64_t stream = stream_of(name);
    const float bound = static_cast<float>(std::sqrt(3.0 / static_cast<double>(shape.n_in)));
    return memory->hold(dtype, shape, [&](std::int64_t output, float* row) {
      const std::int64_t begin = output * shape.n_in;
      fill({begin, begin + shape.n_in}, stream,
           [&](std::int64_t i, float u) { row[i - begin] = bound * u; });
    });
  }
  std::uint64_t stream_of(const std::string& name) const {
    std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    return split_mix(seed_) ^ hash;
  }
  // Calls set(i, u) for i in `range`, with u uniform in [-1, 1).
  template <typename Set>
  static void fill(Extent range, std::uint64_t stream, Set set) {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const auto bits =
          static_cast<std::int32_t>(split_mix(stream + static_cast<std::uint64_t>(i)) >> 32);
      set(i, static_cast<float>(bits) * 0x1p-31F);
    }
  }

  DType dtype_;
  std::uint64_t seed_;
};

namespace {

// What Weights reads of one layer from a source: what the model does not have stays empty.
template <typename Source>
class LayerReader {
 public:
  LayerReader(const ModelSpec& spec, std::int64_t layer, StreamRef stream, Source& source)
      : spec_(spec),
        prefix_(fmt::format("model.layers.{}.", layer)),
        stream_(stream),
        source_(source) {}

  LayerWeights read() {
    const std::int64_t d_model = spec_.d_model;
    const std::int64_t q_width = spec_.n_heads * spec_.head_dim;
    const std::int64_t kv_width = spec_.n_kv_heads * spec_.head_dim;
    LayerWeights layer;
    layer.attention_norm = vector("input_layernorm.weight", d_model);
    projections({{"self_attn.q_proj", q_width, layer.q, layer.q_bias},
                 {"self_attn.k_proj", kv_width, layer.k, layer.k_bias},
                 {"self_attn.v_proj", kv_width, layer.v, layer.v_bias}});
    // Ranks share the inputs of o by KV heads.
    layer.o = matrix("self_attn.o_proj", {d_model, q_width, spec_.gqa_group() * spec_.head_dim});
    layer.o_bias = vector("self_attn.o_proj.bias", d_model);
    layer.q_norm = vector("self_attn.q_norm.weight", spec_.head_dim);
    layer.k_norm = vector("self_attn.k_norm.weight", spec_.head_dim);
    layer.sink_logits = spec_.sink_logits == SinkLogits::kZero
                            ? place(std::vector<float>(static_cast<std::size_t>(spec_.n_heads)))
                            : vector("self_attn.sinks", spec_.n_heads);
    layer.ffn_norm = vector("post_attention_layernorm.weight", d_model);
    projections({{"mlp.gate_proj", spec_.d_ff, layer.gate, layer.gate_bias},
                 {"mlp.up_proj", spec_.d_ff, layer.up, layer.up_bias}});
    layer.down = matrix("mlp.down_proj", {d_model, spec_.d_ff, kInt8Group});
    layer.down_bias = vector("mlp.down_proj.bias", d_model);
    return layer;
  }

 private:
  // Of products with the same rows, at most three, which lie together (kernels/project.h).
  struct Output {
    std::string_view name;
    std::int64_t n;
    WeightView& weight;
    std::span<const float>& bias;
  };

  auto place(auto weight) { return source_.memory->place(stream_, std::move(weight)); }

  WeightView matrix(std::string_view name, const Int8Shape& shape) {
    return place(source_.matrix(fmt::format("{}{}.weight", prefix_, name), shape));
  }

  std::vector<float> values(const std::string& name, std::int64_t n) {
    if (!has_layer_tensor(spec_, name)) return {};
    return source_.vector(prefix_ + name, n);
  }
  std::span<const float> vector(const std::string& name, std::int64_t n) {
    return place(values(name, n));
  }

  void projections(std::initializer_list<Output> outputs) {
    std::vector<WeightView> weights;
    std::vector<float> biases;
    for (const Output& output : outputs) {
      weights.push_back(source_.matrix(fmt::format("{}{}.weight", prefix_, output.name),
                                       {output.n, spec_.d_model, kInt8Group}));
      const std::vector<float> bias = values(fmt::format("{}.bias", output.name), output.n);
      biases.insert(biases.end(), bias.begin(), bias.end());
    }
    weights = place(std::move(weights));
    std::span<const float> bias = place(std::move(biases));
    for (std::size_t i = 0; const Output& output : outputs) {
      output.weight = weights[i++];
      if (bias.empty()) continue;
      output.bias = bias.first(static_cast<std::size_t>(output.n));
      bias = bias.subspan(static_cast<std::size_t>(output.n));
    }
  }

  const ModelSpec& spec_;
  std::string prefix_;
  StreamRef stream_;
  Source& source_;
};

}  // namespace

template <typename Source>
Weights::Weights(const ModelSpec& spec, Extent layers, const DeviceId& device, Source source)
    : spec_(spec), device_(device), layers_(layers) {
  const DeviceQueue queue(device);
  const auto place = [&](auto weight) {
    return source.memory->place(queue.stream(), std::move(weight));
  };
  spec.validate();
  require(0 <= layers.begin && layers.begin <= layers.end && layers.end <= spec.n_layers,
          fmt::format("weights: layers [{}, {}) of a model with {} layers", layers.begin,
                      layers.end, spec.n_layers));
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer)
    layer_weights_.push_back(LayerReader(spec, layer, queue.stream(), source).read());
  const Int8Shape table{spec.vocab_size, spec.d_model};
  const bool has_last = layers.end == spec.n_layers;
  if (layers.begin == 0 || (has_last && spec.tied_embeddings)) {
    embedding_ = place(source.table(kEmbeddingTensor, table));
  }
  if (has_last) {
    final_norm_ = place(source.vector(kFinalNormTensor, spec.d_model));
    // Some files store tied matrices twice; config.json decides.
    lm_head_ = spec.tied_embeddings ? embedding_ : place(source.head(kHeadTensor, table));
  }
  memory_ = std::move(source.memory);
}

Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;
Weights::~Weights() = default;

std::span<const float> sink_logits_of(const Weights& weights, LayerId layer, KvHeadId kv_head) {
  const std::span<const float> all = weights.layer(layer).sink_logits;
  if (all.empty()) return {};
  const auto group = static_cast<std::size_t>(weights.spec().gqa_group());
  return all.subspan(static_cast<std::size_t>(kv_head.value) * group, group);
}

Weights Weights::load(const ModelFolder& folder, Extent layers, std::optional<DType> dtype,
                      const DeviceId& device, Fp8Inputs fp8_inputs, WeightFiles files) {
  // What goes to a GPU is copied there.
  if (device.kind != Device::kCpu) files = WeightFiles::kMapped;
  Weights weights(folder.config().spec, layers, device,
                  FolderSource(folder, dtype, fp8_inputs, files));
  // After those that are read, whose errors say more.
  unread_tensors(folder);
  return weights;
}

Weights Weights::load(const ModelFolder& folder, std::optional<DType> dtype, const DeviceId& device,
                      Fp8Inputs fp8_inputs, WeightFiles files) {
  return load(folder, {0, folder.config().spec.n_layers}, dtype, device, fp8_inputs, files);
}

Weights Weights::synthetic(const ModelSpec& spec, Extent layers, DType dtype, std::uint64_t seed,
                           const DeviceId& device) {
  return Weights(spec, layers, device, SyntheticSource(dtype, seed));
}

Weights Weights::synthetic(const ModelSpec& spec, DType dtype, std::uint64_t seed,
                           const DeviceId& device) {
  return synthetic(spec, {0, spec.n_layers}, dtype, seed, device);
}

std::size_t Weights::matrix_bytes() const {
  std::int64_t sum = embedding_.bytes();
  if (lm_head_.data != embedding_.data) sum += lm_head_.bytes();
  for (const LayerWeights& w : layer_weights_) {
    for (const WeightView* view : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
      sum += view->bytes();
    }
  }
  return static_cast<std::size_t>(sum);
}

}  // namespace longhaul
