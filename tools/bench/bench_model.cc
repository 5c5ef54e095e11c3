#include "tools/bench/bench_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"
#include "kernels/probes/cpu_probes.h"
#include "partition/weight_bytes.h"
#include "tools/bench/shapes.h"
#include "tools/eval/random_draws.h"
#include "tools/job/device_choice.h"
#include "tools/job/head_settings.h"
#include "tools/job/input_errors.h"
#include "tools/job/memory_probe.h"

namespace longhaul::bench {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kGpuProbeBytes = std::int64_t{17} << 27;  // gpu_probes.h, and its scratch

std::int64_t free_bytes_of(const DeviceId& device) {
  if (device.kind == Device::kCpu) return free_memory_bytes();
  return static_cast<std::int64_t>(cuda::device_info(device.ordinal).free_bytes);
}

// Ranks of one process share what the first of them makes; those of other processes look at the
// same moment, before any of them has made its own.
void check_memory(const ModelShape& shape, DType dtype, Extent layers, const DeviceId& device) {
  const std::int64_t free_bytes = free_bytes_of(device);
  const std::int64_t probe_bytes =
      device.kind == Device::kCpu ? CpuProbes::kReadBytes : kGpuProbeBytes;
  const std::int64_t needed = stage_weight_bytes(shape.spec, dtype, layers) + probe_bytes;
  if (needed <= free_bytes) return;
  throw Error(
      ErrorCode::kOutOfMemory,
      fmt::format("{}: {} layers take {} with the probe's memory, {} are free; bench fewer: "
                  "--layers",
                  shape.name, layers.size(), format_byte_size(needed),
                  format_byte_size(free_bytes)));
}

// The same on every rank: a part of a model is made as it is in the whole one.
std::shared_ptr<ModelSource> random_source(const ModelShape& shape, std::optional<DType> asked) {
  const DType own = shape.spec.weight_dtype == DType::kF32 ? DType::kF32 : DType::kBf16;
  const DType dtype = asked.value_or(own);
  return std::make_shared<ModelSource>(
      shape.spec, dtype, [shape, dtype](Extent layers, const DeviceId& device) {
        check_memory(shape, dtype, layers, device);
        return Weights::synthetic(shape.spec, layers, dtype, kSeed, device);
      });
}

// By a profile whose gates say nothing: heads are ordered at random, the same every time.
HeadRoles scattered_roles(const HeadSettings& heads, const ModelSpec& spec) {
  HeadProfile profile{.n_layers = spec.n_layers, .n_kv_heads = spec.n_kv_heads};
  profile.sink = heads.sink.value_or(128);
  profile.recent = heads.recent.value_or(256);
  RandomDraws draws(kSeed);
  for (std::int64_t i = 0; i < spec.n_layers * spec.n_kv_heads; ++i) {
    profile.gates.push_back(static_cast<double>(draws.next() >> 11) * 0x1p-53);
  }
  return choose_roles(profile, heads.retrieval_ratio);
}

// By a profile of the whole model, of which the benchmark may have the first layers only.
HeadRoles first_roles(const HeadSettings& heads, const ModelSpec& whole, std::int64_t n_layers,
                      const ModelFolder* folder) {
  HeadRoles roles = roles_by_profile(heads, whole, folder).roles;
  roles.n_layers = n_layers;
  roles.roles.resize(static_cast<std::size_t>(n_layers * roles.n_kv_heads));
  return roles;
}

}  // namespace

BenchModel::BenchModel(const BenchFlags& flags, const std::filesystem::path& hub_cache)
    : flags_(flags), device_(chosen_device(flags.job.device)) {
  require_whole_pages(flags.heads.methods, usual_block_size(flags.job));
  ModelSpec whole;
  if (!flags.model.empty()) {
    const auto folder = open_model_folder(flags.model, hub_cache);
    whole = folder->config().spec;
    name_ = std::filesystem::absolute(folder->path()).lexically_normal().filename().string();
    source_ = source_of(folder, flags.job);
  } else {
    ModelShape shape = model_shape(flags.shape);
    name_ = shape.name;
    whole = shape.spec;
    if (flags.n_layers) shape.spec = with_layers(shape.spec, *flags.n_layers);
    source_ = random_source(shape, flags.job.weights);
  }
  n_layers_of_model_ = whole.n_layers;
  const bool is_scattered = flags.heads.profile.empty() && flags.heads.retrieval_ratio;
  roles_ = is_scattered ? scattered_roles(flags.heads, spec())
                        : first_roles(flags.heads, whole, spec().n_layers, source_->folder());
  heads_ = method_heads(spec(), roles_, flags.heads.methods);
  if (flags.n_quoted != "0") require_can_take_back(heads_, "--quote");
  require_cacheable(heads_, formats().kv(spec()));
}

Workload BenchModel::formats() const { return formats_of(flags_.job, source_->weight_dtype()); }

Workload BenchModel::workload(std::span<const ModelTest> tests, std::int64_t n_ranks) const {
  Workload workload = formats();
  workload.document_tokens = 0;
  workload.tail_tokens = 0;
  for (const ModelTest& test : tests) {
    workload.document_tokens = std::max(workload.document_tokens, test.n_depth);
    workload.tail_tokens = std::max(workload.tail_tokens, test.n_tokens());
    workload.n_sequences = std::max(workload.n_sequences, test.n_sequences);
    workload.n_guesses = std::max(workload.n_guesses, test.draft_max);
  }
  workload.chunk_len = usual_chunk_len(flags_.job, n_ranks);
  return workload;
}

ModelWorkArgs BenchModel::work_args() const {
  return {.spec = spec(),
          .heads = heads_,
          .weight_dtype = source_->weight_dtype(),
          .kv = formats().kv(spec())};
}

ModelFacts BenchModel::facts() const {
  const ModelSpec& spec = source_->spec();
  const DType weight_dtype = source_->weight_dtype();
  ModelFacts facts;
  facts.model = fmt::format("{} {}", name_, name_of(weight_dtype));
  if (spec.n_layers < n_layers_of_model_) {
    facts.model += fmt::format(", {}/{} layers", spec.n_layers, n_layers_of_model_);
  }
  if (device_.kind == Device::kCuda) facts.gpu = describe(device_);
  facts.model_type = spec.model_type;
  facts.weight_type = name_of(weight_dtype);
  facts.size_bytes = stage_weight_bytes(spec, weight_dtype, {0, spec.n_layers});
  facts.n_params = n_parameters(spec);
  facts.n_layers = spec.n_layers;
  facts.n_layers_of_model = n_layers_of_model_;
  const Workload workload = formats();
  facts.type_k = name_of(workload.k_type);
  facts.type_v = name_of(workload.v_type);
  facts.n_heads = spec.n_layers * spec.n_kv_heads;
  facts.n_retrieval = roles_.n_retrieval();
  facts.sink = roles_.sink;
  facts.recent = roles_.recent;
  return facts;
}

}  // namespace longhaul::bench
