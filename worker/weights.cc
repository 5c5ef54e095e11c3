#include "worker/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

std::uint64_t mix(std::uint64_t x) {  // splitmix64 (Steele, Lea & Flood 2014)
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

void to_floats(const TensorBytes& tensor, std::span<float> out) {
  const auto convert = [&](auto read) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = read(i);
  };
  const auto element = [&]<typename T>(std::type_identity<T>, std::size_t i) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  };
  switch (tensor.dtype) {
    case DType::kF32:
      std::memcpy(out.data(), tensor.bytes.data(), out.size_bytes());
      return;
    case DType::kF64:
      return convert([&](std::size_t i) {
        return static_cast<float>(element(std::type_identity<double>{}, i));
      });
    case DType::kF16:
      return convert(
          [&](std::size_t i) { return to_float(element(std::type_identity<Float16>{}, i)); });
    case DType::kBf16:
      return convert(
          [&](std::size_t i) { return to_float(element(std::type_identity<BFloat16>{}, i)); });
    case DType::kI8:
      break;
  }
  throw Error(ErrorCode::kUnsupported,
              fmt::format("weights of type {} are not supported", name_of(tensor.dtype)));
}

}  // namespace

struct Weights::Memory {
  std::optional<ModelFolder> folder;  // keeps the files mapped
  std::vector<Tensor<float, 2>> floats;
  std::vector<Tensor<BFloat16, 2>> bf16s;
};

// Sources give tensors by their Hugging Face names, and the memory that they lie in.

class Weights::FolderSource {
 public:
  explicit FolderSource(const ModelFolder& folder) { memory->folder = folder; }
  std::unique_ptr<Memory> memory = std::make_unique<Memory>();

  WeightView matrix(const std::string& name, std::int64_t n_out, std::int64_t n_in) {
    const TensorBytes tensor = checked(name, {n_out, n_in});
    WeightView view{
        .data = tensor.bytes.data(), .dtype = tensor.dtype, .n_out = n_out, .n_in = n_in};
    const bool is_usable = tensor.dtype == DType::kF32 || tensor.dtype == DType::kBf16;
    // safetensors does not promise alignment.
    const bool is_aligned =
        reinterpret_cast<std::uintptr_t>(view.data) % size_of(tensor.dtype) == 0;
    if (is_usable && is_aligned) return view;
    Tensor<float, 2>& copy = memory->floats.emplace_back(Tensor<float, 2>({n_out, n_in}));
    to_floats(tensor, {copy.data(), static_cast<std::size_t>(copy.size())});
    view.data = copy.data();
    view.dtype = DType::kF32;
    return view;
  }

  std::vector<float> vector(const std::string& name, std::int64_t n) {
    const TensorBytes tensor = checked(name, {n});
    std::vector<float> out(static_cast<std::size_t>(n));
    to_floats(tensor, out);
    return out;
  }

 private:
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
};

// Uniform numbers: matrices with variance 1 / n_in, norms around 1, small biases. A tensor depends
// on the seed and its name only, so that a part of a model has the same weights as the whole.
class Weights::SyntheticSource {
 public:
  SyntheticSource(DType dtype, std::uint64_t seed) : dtype_(dtype), seed_(seed) {
    require(dtype == DType::kF32 || dtype == DType::kBf16,
            fmt::format("synthetic weights are f32 or bf16, not {}", name_of(dtype)));
  }
  std::unique_ptr<Memory> memory = std::make_unique<Memory>();

  WeightView matrix(const std::string& name, std::int64_t n_out, std::int64_t n_in) {
    WeightView view{.data = nullptr, .dtype = dtype_, .n_out = n_out, .n_in = n_in};
    const std::uint64_t stream = stream_of(name);
    const float bound = static_cast<float>(std::sqrt(3.0 / static_cast<double>(n_in)));
    if (dtype_ == DType::kF32) {
      Tensor<float, 2>& out = memory->floats.emplace_back(Tensor<float, 2>({n_out, n_in}));
      fill(out.size(), stream, [&](std::int64_t i, float u) { out.data()[i] = bound * u; });
      view.data = out.data();
    } else {
      Tensor<BFloat16, 2>& out = memory->bf16s.emplace_back(Tensor<BFloat16, 2>({n_out, n_in}));
      fill(out.size(), stream,
           [&](std::int64_t i, float u) { out.data()[i] = to_bf16(bound * u); });
      view.data = out.data();
    }
    return view;
  }

  std::vector<float> vector(const std::string& name, std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    const float middle = name.ends_with("norm.weight") ? 1.0F : 0.0F;
    fill(n, stream_of(name),
         [&](std::int64_t i, float u) { out[static_cast<std::size_t>(i)] = middle + 0.2F * u; });
    return out;
  }

 private:
  std::uint64_t stream_of(const std::string& name) const {
    std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    return mix(seed_) ^ hash;
  }
  // Calls set(i, u) with u uniform in [-1, 1).
  template <typename Set>
  static void fill(std::int64_t n, std::uint64_t stream, Set set) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto bits =
          static_cast<std::int32_t>(mix(stream + static_cast<std::uint64_t>(i)) >> 32);
      set(i, static_cast<float>(bits) * 0x1p-31F);
    }
  }

  DType dtype_;
  std::uint64_t seed_;
};

template <typename Source>
Weights::Weights(const ModelSpec& spec, Extent layers, Source source)
    : spec_(spec), layers_(layers) {
  spec.validate();
  require(0 <= layers.begin && layers.begin <= layers.end && layers.end <= spec.n_layers,
          fmt::format("weights: layers [{}, {}) of a model with {} layers", layers.begin,
                      layers.end, spec.n_layers));
  const std::int64_t d_model = spec.d_model;
  const std::int64_t q_width = spec.n_heads * spec.head_dim;
  const std::int64_t kv_width = spec.n_kv_heads * spec.head_dim;
  for (std::int64_t number = layers.begin; number < layers.end; ++number) {
    const std::string prefix = fmt::format("model.layers.{}.", number);
    const auto matrix = [&](std::string_view name, std::int64_t n_out, std::int64_t n_in) {
      return source.matrix(fmt::format("{}{}.weight", prefix, name), n_out, n_in);
    };
    const auto vector = [&](bool exists, std::string_view name, std::int64_t n) {
      return exists ? source.vector(prefix + std::string(name), n) : std::vector<float>();
    };
    LayerWeights layer;
    layer.attention_norm = vector(true, "input_layernorm.weight", d_model);
    layer.q = matrix("self_attn.q_proj", q_width, d_model);
    layer.k = matrix("self_attn.k_proj", kv_width, d_model);
    layer.v = matrix("self_attn.v_proj", kv_width, d_model);
    layer.o = matrix("self_attn.o_proj", d_model, q_width);
    layer.q_bias = vector(spec.qkv_bias, "self_attn.q_proj.bias", q_width);
    layer.k_bias = vector(spec.qkv_bias, "self_attn.k_proj.bias", kv_width);
    layer.v_bias = vector(spec.qkv_bias, "self_attn.v_proj.bias", kv_width);
    layer.o_bias = vector(spec.attention_output_bias, "self_attn.o_proj.bias", d_model);
    layer.q_norm = vector(spec.qk_norm, "self_attn.q_norm.weight", spec.head_dim);
    layer.k_norm = vector(spec.qk_norm, "self_attn.k_norm.weight", spec.head_dim);
    layer.ffn_norm = vector(true, "post_attention_layernorm.weight", d_model);
    layer.gate = matrix("mlp.gate_proj", spec.d_ff, d_model);
    layer.up = matrix("mlp.up_proj", spec.d_ff, d_model);
    layer.down = matrix("mlp.down_proj", d_model, spec.d_ff);
    layer.gate_bias = vector(spec.mlp_bias, "mlp.gate_proj.bias", spec.d_ff);
    layer.up_bias = vector(spec.mlp_bias, "mlp.up_proj.bias", spec.d_ff);
    layer.down_bias = vector(spec.mlp_bias, "mlp.down_proj.bias", d_model);
    layer_weights_.push_back(std::move(layer));
  }
  embedding_ = source.matrix("model.embed_tokens.weight", spec.vocab_size, d_model);
  final_norm_ = source.vector("model.norm.weight", d_model);
  // Some files store tied matrices twice; config.json decides.
  lm_head_ =
      spec.tied_embeddings ? embedding_ : source.matrix("lm_head.weight", spec.vocab_size, d_model);
  memory_ = std::move(source.memory);
}

Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;
Weights::~Weights() = default;

Weights Weights::load(const ModelFolder& folder, Extent layers) {
  return Weights(folder.config().spec, layers, FolderSource(folder));
}

Weights Weights::load(const ModelFolder& folder) {
  return load(folder, {0, folder.config().spec.n_layers});
}

Weights Weights::synthetic(const ModelSpec& spec, DType dtype, std::uint64_t seed) {
  return Weights(spec, {0, spec.n_layers}, SyntheticSource(dtype, seed));
}

std::size_t Weights::matrix_bytes() const {
  const auto bytes = [](const WeightView& w) {
    return static_cast<std::size_t>(w.n_out * w.n_in) * size_of(w.dtype);
  };
  std::size_t sum = bytes(embedding_);
  if (lm_head_.data != embedding_.data) sum += bytes(lm_head_);
  for (const LayerWeights& w : layer_weights_) {
    for (const WeightView* view : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
      sum += bytes(*view);
    }
  }
  return sum;
}

}  // namespace longhaul
