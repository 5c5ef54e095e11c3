#include "tools/job/model_source.h"

#include <fmt/format.h>

#include "coordinator/fingerprint.h"
#include "model/tokenizer/token_classes.h"
#include "partition/dimensions_fingerprint.h"
#include "partition/weight_support.h"
#include "tools/job/input_errors.h"

namespace longhaul {

ModelSource::ModelSource(ModelSpec spec, DType weight_dtype, Load load,
                         std::shared_ptr<const ModelFolder> folder)
    : spec_(std::move(spec)),
      weight_dtype_(weight_dtype),
      load_(std::move(load)),
      folder_(std::move(folder)) {}

std::string ModelSource::name() const { return folder_ ? folder_->path().string() : "the model"; }

Json ModelSource::fingerprint() const {
  const FileWait wait(FileUse::kReadingBeforeWork, name());
  if (folder_) return model_fingerprint(*folder_);
  return JsonObject{{"dimensions", dimensions_fingerprint(spec_)}};
}

std::shared_ptr<const Weights> ModelSource::layers(Extent layers, const DeviceId& device) {
  require_weights(spec_, weight_dtype_);
  const FileWait wait(use(), name());
  const std::lock_guard lock(mutex_);
  auto& weights = shelf_[{layers, name_of(device)}];
  if (!weights) weights = std::make_shared<const Weights>(load_(layers, device));
  has_read_ = true;
  return weights;
}

std::shared_ptr<const Weights> ModelSource::all_layers(const DeviceId& device) {
  return layers({0, spec_.n_layers}, device);
}

std::shared_ptr<const TokenClasses> ModelSource::token_classes() {
  const std::lock_guard lock(mutex_);
  if (token_classes_) return token_classes_;
  TokenClasses classes(static_cast<std::size_t>(spec_.vocab_size), TokenClass::kOther);
  if (folder_) classes = longhaul::token_classes(open_tokenizer(*folder_), spec_.vocab_size);
  return token_classes_ = std::make_shared<const TokenClasses>(std::move(classes));
}

namespace {

void check_fp8_inputs(const JobConfig& job, DType weights) {
  if (job.fp8_inputs == Fp8Inputs::kAsTheyAre) return;
  if (weights != DType::kF8E4m3) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--fp8-activations is for products with weights of fp8, and these are "
                            "{} in memory: --weights fp8 converts them",
                            name_of(weights)));
  }
  // Ranks that share a matrix cut groups of inputs, which then have scales of their own.
  if (job.reproducible) {
    throw Error(ErrorCode::kInvalidArgument,
                "--fp8-activations: how inputs are rounded depends on how ranks share matrices, "
                "which --reproducible cannot have");
  }
}

}  // namespace

std::shared_ptr<ModelSource> source_of(std::shared_ptr<const ModelFolder> folder,
                                       const JobConfig& job) {
  const ModelSpec& spec = folder->config().spec;
  const DType weights = read_input([&] { return weights_in_memory(job.weights, *folder); });
  check_fp8_inputs(job, weights);
  return std::make_shared<ModelSource>(
      spec, weights,
      [folder, asked = job.weights, inputs = job.fp8_inputs, files = job.weight_files](
          Extent layers, const DeviceId& device) {
        return read_input(
            [&] { return Weights::load(*folder, layers, asked, device, inputs, files); });
      },
      folder);
}

namespace {

DType type_of_files(const ModelFolder& folder) {
  return folder.matrix_type().value_or(folder.config().spec.weight_dtype);
}

}  // namespace

DType weights_in_memory(std::optional<DType> asked, const ModelFolder& folder) {
  if (asked) return *asked;
  const DType dtype = type_of_files(folder);
  if (dtype == DType::kI8 || dtype == DType::kF8E4m3) return dtype;
  return dtype == DType::kBf16 ? DType::kBf16 : DType::kF32;  // others are converted to f32
}

bool makes_weights(const JobConfig& job, const ModelFolder& folder) {
  return job.weight_files == WeightFiles::kCopied ||
         weights_in_memory(job.weights, folder) != type_of_files(folder);
}

}  // namespace longhaul
