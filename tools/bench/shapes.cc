#include "tools/bench/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "model/hf_config.h"

namespace longhaul::bench {
namespace {

enum class Extra { kNone, kQkvBias, kQkNorm };

// From the config.json of each model on the hub.
struct Published {
  std::string_view name, model_type;
  std::int64_t vocab_size, d_model, d_ff, n_layers, n_heads, n_kv_heads, head_dim, max_seq_len;
  double rope_theta;
  double llama3_factor;  // of rope_scaling; 0: none
  double norm_eps;
  bool tied_embeddings;
  Extra extra;
};

constexpr Published kPublished[] = {
    // clang-format off
    {"tinyllama-1.1b", "llama", 32000, 2048, 5632, 22, 32, 4, 64, 2048, 1e4, 0, 1e-5, false, Extra::kNone},
    {"llama-2-7b", "llama", 32000, 4096, 11008, 32, 32, 32, 128, 4096, 1e4, 0, 1e-5, false, Extra::kNone},
    {"llama-3-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 128, 8192, 5e5, 0, 1e-5, false, Extra::kNone},
    {"llama-3.1-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 128, 131072, 5e5, 8, 1e-5, false, Extra::kNone},
    {"llama-3.1-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 128, 131072, 5e5, 8, 1e-5, false, Extra::kNone},
    {"llama-3.2-1b", "llama", 128256, 2048, 8192, 16, 32, 8, 64, 131072, 5e5, 32, 1e-5, true, Extra::kNone},
    {"llama-3.2-3b", "llama", 128256, 3072, 8192, 28, 24, 8, 128, 131072, 5e5, 32, 1e-5, true, Extra::kNone},
    {"mistral-7b", "mistral", 32768, 4096, 14336, 32, 32, 8, 128, 32768, 1e6, 0, 1e-5, false, Extra::kNone},  // v0.3
    {"qwen2.5-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, 64, 32768, 1e6, 0, 1e-6, true, Extra::kQkvBias},
    {"qwen2.5-7b", "qwen2", 152064, 3584, 18944, 28, 28, 4, 128, 131072, 1e6, 0, 1e-6, false, Extra::kQkvBias},
    {"qwen3-8b", "qwen3", 151936, 4096, 12288, 36, 32, 8, 128, 40960, 1e6, 0, 1e-6, false, Extra::kQkNorm},
    // clang-format on
};

ModelSpec spec_of(const Published& p) {
  ModelSpec spec;
  spec.model_type = p.model_type;
  spec.vocab_size = p.vocab_size;
  spec.d_model = p.d_model;
  spec.d_ff = p.d_ff;
  spec.n_layers = p.n_layers;
  spec.n_heads = p.n_heads;
  spec.n_kv_heads = p.n_kv_heads;
  spec.head_dim = p.head_dim;
  spec.max_seq_len = p.max_seq_len;
  spec.norm_eps = p.norm_eps;
  spec.rope_theta = p.rope_theta;
  if (p.llama3_factor > 0) {
    spec.rope_scaling.kind = RopeScaling::Kind::kLlama3;
    spec.rope_scaling.factor = p.llama3_factor;
    spec.rope_scaling.original_max_position = 8192;
  }
  spec.qkv_bias = p.extra == Extra::kQkvBias;
  spec.qk_norm = p.extra == Extra::kQkNorm;
  spec.tied_embeddings = p.tied_embeddings;
  spec.attention_window.assign(static_cast<std::size_t>(p.n_layers), ModelSpec::kNoWindow);
  spec.weight_dtype = DType::kBf16;
  return spec;
}

ModelShape read_shape(const std::filesystem::path& file) {
  const std::string text = read_file(file, std::size_t{1} << 20);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  return {folder.filename().string(), parse_hf_config(text, file.string()).spec};
}

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Published& p : kPublished) names.emplace_back(p.name);
  return names;
}

ModelShape model_shape(std::string_view name_or_path) {
  std::string name(name_or_path);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Published& p : kPublished) {
    if (p.name == name) return {name, spec_of(p)};
  }
  const std::filesystem::path path(name_or_path);
  if (std::filesystem::is_directory(path)) return read_shape(path / "config.json");
  if (std::filesystem::is_regular_file(path)) return read_shape(path);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--shape {}: there is no such config.json, and no such shape; known are "
                          "{}",
                          name_or_path, fmt::join(shape_names(), ", ")));
}

ModelSpec with_layers(const ModelSpec& spec, std::int64_t n_layers) {
  require(1 <= n_layers && n_layers <= spec.n_layers,
          fmt::format("{} layers of a model that has {}", n_layers, spec.n_layers));
  ModelSpec part = spec;
  part.n_layers = n_layers;
  part.attention_window.resize(static_cast<std::size_t>(n_layers));
  return part;
}

std::int64_t n_parameters(const ModelSpec& spec) {
  const std::int64_t q_width = spec.n_heads * spec.head_dim;
  const std::int64_t kv_width = spec.n_kv_heads * spec.head_dim;
  std::int64_t layer =
      spec.d_model * (2 * q_width + 2 * kv_width + 3 * spec.d_ff) + 2 * spec.d_model;
  if (spec.qkv_bias) layer += q_width + 2 * kv_width;
  if (spec.attention_output_bias) layer += spec.d_model;
  if (spec.mlp_bias) layer += 2 * spec.d_ff + spec.d_model;
  if (spec.qk_norm) layer += 2 * spec.head_dim;
  const std::int64_t n_tables = spec.tied_embeddings ? 1 : 2;
  return spec.n_layers * layer + n_tables * spec.vocab_size * spec.d_model + spec.d_model;
}

}  // namespace longhaul::bench
