#include "tools/bench/bench_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"
#include "kernels/probes/cpu_probes.h"
#include "partition/weight_bytes.h"
#include "tools/bench/shapes.h"
#include "tools/eval/head_choice.h"
#include "tools/eval/random_draws.h"
#include "tools/job/device_choice.h"
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
  const HeadSettings& heads = flags.heads;
  HeadChoice choice{
      .retrieval_ratio = heads.retrieval_ratio, .sink = heads.sink, .recent = heads.recent};
  if (heads.profile.empty()) {
    if (heads.retrieval_ratio) choice.profile = scattered_profile(spec);
    return choose_head_roles(choice, spec.n_layers, spec.n_kv_heads);
  }
  choice.profile = read_input([&] { return read_head_profile(heads.profile); });
  HeadRoles roles = choose_head_roles(choice, n_layers_of_model, spec.n_kv_heads);
  roles.n_layers = spec.n_layers;
  roles.roles.resize(static_cast<std::size_t>(spec.n_layers * spec.n_kv_heads));
  return roles;
}

BenchModel::BenchModel(const BenchFlags& flags, const std::filesystem::path& hub_cache)
    : flags_(flags), device_(chosen_device(flags.job.device)) {
  require_whole_pages(flags.heads.methods, flags.job.block_size);
  if (!flags.model.empty()) {
    const auto folder = open_model_folder(flags.model, hub_cache);
    name_ = std::filesystem::absolute(folder->path()).lexically_normal().filename().string();
    n_layers_of_model_ = folder->config().spec.n_layers;
    source_ = source_of(folder, flags.job);
  } else {
    ModelShape shape = model_shape(flags.shape);
    name_ = shape.name;
    n_layers_of_model_ = shape.spec.n_layers;
    if (flags.n_layers) shape.spec = with_layers(shape.spec, *flags.n_layers);
    source_ = random_source(shape, flags.job.weights);
  }
  roles_ = bench_roles(flags, spec(), n_layers_of_model_);
  heads_ = method_heads(spec(), roles_, flags.heads.methods);
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
