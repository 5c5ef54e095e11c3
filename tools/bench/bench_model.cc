#include "tools/bench/bench_model.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "partition/byte_size.h"
#include "partition/weight_bytes.h"
#include "tools/bench/shapes.h"
#include "tools/device_flag.h"
#include "tools/environment.h"
#include "tools/eval/head_choice.h"
#include "tools/eval/random_draws.h"
#include "tools/rank_probe.h"
#include "tools/weights_flag.h"

namespace longhaul::bench {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kProbeBytes = std::int64_t{1} << 29;      // as probes.h says
constexpr std::int64_t kGpuProbeBytes = std::int64_t{17} << 27;  // gpu_probes.h, and its scratch

std::optional<std::int64_t> free_bytes_of(const DeviceId& device) {
  if (device.kind == Device::kCuda) {
    return static_cast<std::int64_t>(cuda::device_info(device.ordinal).free_bytes);
  }
  std::ifstream in("/proc/meminfo");  // has no size and cannot be mapped
  return available_bytes_of(std::string(std::istreambuf_iterator<char>(in), {}));
}

void check_memory(const ModelShape& shape, DType dtype, const DeviceId& device) {
  const auto free_bytes = free_bytes_of(device);
  const std::int64_t probe_bytes = device.kind == Device::kCpu ? kProbeBytes : kGpuProbeBytes;
  const std::int64_t needed =
      stage_weight_bytes(shape.spec, dtype, {0, shape.spec.n_layers}) + probe_bytes;
  if (!free_bytes || needed <= *free_bytes) return;
  throw Error(
      ErrorCode::kOutOfMemory,
      fmt::format("{}: {} layers take {} with the probe's memory, {} are free; bench fewer: "
                  "--layers",
                  shape.name, shape.spec.n_layers, format_byte_size(needed),
                  format_byte_size(*free_bytes)));
}

// A profile whose gates say nothing: heads are ordered at random, the same every time.
HeadProfile scattered_profile(const ModelSpec& spec) {
  HeadProfile profile{.n_layers = spec.n_layers, .n_kv_heads = spec.n_kv_heads};
  profile.sink = 128;
  profile.recent = 256;
  RandomDraws draws(kSeed);
  for (std::int64_t i = 0; i < spec.n_layers * spec.n_kv_heads; ++i) {
    profile.gates.push_back(static_cast<double>(draws.next() >> 11) * 0x1p-53);
  }
  return profile;
}

}  // namespace

HeadRoles bench_roles(const BenchFlags& flags, const ModelSpec& spec,
                      std::int64_t n_layers_of_model) {
  HeadChoice choice{
      .retrieval_ratio = flags.retrieval_ratio, .sink = flags.sink, .recent = flags.recent};
  if (flags.head_profile.empty()) {
    if (flags.retrieval_ratio) choice.profile = scattered_profile(spec);
    return choose_head_roles(choice, spec.n_layers, spec.n_kv_heads);
  }
  choice.profile = read_head_profile(flags.head_profile);
  HeadRoles roles = choose_head_roles(choice, n_layers_of_model, spec.n_kv_heads);
  roles.n_layers = spec.n_layers;
  roles.roles.resize(static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads));
  return roles;
}

BenchModel::BenchModel(const BenchFlags& flags)
    : flags_(flags), device_(chosen_device(flags.device)) {
  if (!flags.model.empty()) {
    const ModelFolder folder(find_model_folder(flags.model, hub_cache()));
    name_ = std::filesystem::absolute(folder.path()).lexically_normal().filename().string();
    n_layers_of_model_ = folder.config().spec.n_layers;
    roles_ = bench_roles(flags, folder.config().spec, n_layers_of_model_);
    weights_ = std::make_shared<const Weights>(
        Weights::load(folder, asked_weights(flags.weights), device_));
  } else {
    ModelShape shape = model_shape(flags.shape);
    name_ = shape.name;
    n_layers_of_model_ = shape.spec.n_layers;
    if (flags.n_layers) shape.spec = with_layers(shape.spec, *flags.n_layers);
    roles_ = bench_roles(flags, shape.spec, n_layers_of_model_);
    const DType own = shape.spec.weight_dtype == DType::kF32 ? DType::kF32 : DType::kBf16;
    const DType dtype = asked_weights(flags.weights).value_or(own);
    check_memory(shape, dtype, device_);
    weights_ =
        std::make_shared<const Weights>(Weights::synthetic(shape.spec, dtype, kSeed, device_));
  }
  weight_dtype_ = weights_->layer(0).q.dtype;
  k_type_ = cache_type(flags.cache_types.k, weight_dtype_);
  v_type_ = cache_type(flags.cache_types.v, weight_dtype_);
}

WorkerConfig BenchModel::worker_config(int n_threads) const {
  WorkerConfig config;
  config.weights = weights_;
  config.device = device_;
  config.roles = roles_;
  config.k_type = k_type_;
  config.v_type = v_type_;
  config.block_size = flags_.block_size;
  config.n_threads = n_threads;
  return config;
}

ModelWorkArgs BenchModel::work_args() const {
  return {.spec = weights_->spec(),
          .roles = roles_,
          .weight_dtype = weight_dtype_,
          .kv = {.k_type = k_type_,
                 .v_type = v_type_,
                 .block_size = flags_.block_size,
                 .head_dim = weights_->spec().head_dim}};
}

ModelFacts BenchModel::facts() const {
  const ModelSpec& spec = weights_->spec();
  ModelFacts facts;
  facts.model = fmt::format("{} {}", name_, name_of(weight_dtype_));
  if (spec.n_layers < n_layers_of_model_) {
    facts.model += fmt::format(", {}/{} layers", spec.n_layers, n_layers_of_model_);
  }
  if (device_.kind == Device::kCuda) facts.gpu = describe(device_);
  facts.model_type = spec.model_type;
  facts.weight_type = name_of(weight_dtype_);
  facts.size_bytes = stage_weight_bytes(spec, weight_dtype_, {0, spec.n_layers});
  facts.n_params = n_parameters(spec);
  facts.n_layers = spec.n_layers;
  facts.n_layers_of_model = n_layers_of_model_;
  facts.chunk_len = flags_.chunk_len;
  facts.type_k = name_of(k_type_);
  facts.type_v = name_of(v_type_);
  facts.n_heads = spec.n_layers * spec.n_kv_heads;
  facts.n_retrieval = roles_.n_retrieval();
  facts.sink = roles_.sink;
  facts.recent = roles_.recent;
  return facts;
}

}  // namespace longhaul::bench
