#include "tools/eval/eval_model.h"

#include <fmt/format.h>

#include <filesystem>

#include <algorithm>

#include "coordinator/fingerprint.h"
#include "coordinator/preparation.h"
#include "tools/job/device_choice.h"
#include "tools/job/input_errors.h"

namespace longhaul {

EvalModel::EvalModel(std::shared_ptr<const ModelFolder> folder, const JobConfig& config)
    : config_(config),
      folder_(std::move(folder)),
      tokenizer_(open_tokenizer(*folder_)),
      source_(source_of(folder_, config)),
      start_(leading_special_tokens(tokenizer_)),
      ends_(folder_->end_tokens()) {}

bool EvalModel::is_end(std::int32_t token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

std::vector<std::int32_t> EvalModel::encode(std::string_view text, bool parse_special) const {
  return read_input([&] {
    return tokenizer_.encode(text, {.add_special_tokens = false, .parse_special = parse_special},
                             config_.n_threads);
  });
}

Workload EvalModel::workload(const EvalLengths& lengths, std::int64_t n_ranks) const {
  Workload workload = formats_of(config_, source_->weight_dtype());
  workload.document_tokens = lengths.document_tokens;
  workload.tail_tokens = lengths.tail_tokens;
  workload.n_sequences = lengths.n_sequences;
  workload.chunk_len = usual_chunk_len(config_, n_ranks);
  return workload;
}

std::string EvalModel::description() const {
  std::string text = fmt::format("{} ({}, {} layers of {} KV heads, weights {})",
                                 folder_->path().string(), spec().model_type, spec().n_layers,
                                 spec().n_kv_heads, name_of(source_->weight_dtype()));
  const DeviceId device = chosen_device(config_.device);
  if (device.kind != Device::kCpu) text += " on " + describe(device);
  return text;
}

Json EvalModel::settings(std::int64_t n_ranks) const {
  const Workload formats = workload({}, n_ranks);
  return JsonObject{{"folder", folder_->path().string()},
                    {"fingerprint", model_fingerprint(*folder_)},
                    {"weights", std::string(name_of(source_->weight_dtype()))},
                    {"cache_type_k", std::string(name_of(formats.k_type))},
                    {"cache_type_v", std::string(name_of(formats.v_type))},
                    {"chunk_len", formats.chunk_len},
                    {"block_size", formats.block_size},
                    {"n_ranks", n_ranks}};
}

std::string model_name(std::string_view given) {
  if (!std::filesystem::is_directory(given)) return std::string(given);
  const auto path = std::filesystem::absolute(given).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace longhaul
