#include "tools/eval/eval_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/fingerprint.h"
#include "coordinator/preparation.h"
#include "tools/byte_size.h"
#include "tools/device_flag.h"
#include "tools/environment.h"
#include "tools/weights_flag.h"

namespace longhaul {

EvalModel::EvalModel(const EvalModelFlags& flags)
    : flags_(flags),
      folder_(find_model_folder(flags.model, hub_cache())),
      tokenizer_(Tokenizer::from_file(folder_.tokenizer_path())),
      weights_(std::make_shared<const Weights>(
          Weights::load(folder_, asked_weights(flags.weights), chosen_device(flags.device)))),
      start_(leading_special_tokens(tokenizer_)),
      ends_(folder_.config().eos_token_ids) {
  const auto& more = folder_.generation().eos_token_ids;
  ends_.insert(ends_.end(), more.begin(), more.end());
}

bool EvalModel::is_end(std::int32_t token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

std::vector<std::int32_t> EvalModel::encode(std::string_view text, bool parse_special) const {
  return tokenizer_.encode(text, {.add_special_tokens = false, .parse_special = parse_special},
                           flags_.n_threads);
}

WorkerConfig EvalModel::worker_config(const HeadRoles& roles) const {
  WorkerConfig config;
  config.weights = weights_;
  config.device = weights_->device();
  config.roles = roles;
  config.k_type = cache_type(flags_.cache_types.k, weight_dtype());
  config.v_type = cache_type(flags_.cache_types.v, weight_dtype());
  config.block_size = flags_.block_size;
  if (!flags_.kv_limit.empty()) config.cache_limit_bytes = parse_byte_size(flags_.kv_limit);
  config.n_threads = flags_.n_threads;
  return config;
}

std::string EvalModel::description() const {
  std::string text =
      fmt::format("{} ({}, {} layers of {} KV heads, weights {})", folder_.path().string(),
                  spec().model_type, spec().n_layers, spec().n_kv_heads, name_of(weight_dtype()));
  if (weights_->device() != DeviceId{}) text += " on " + describe(weights_->device());
  return text;
}

Json EvalModel::settings() const {
  return JsonObject{
      {"folder", folder_.path().string()},
      {"fingerprint", model_fingerprint(folder_)},
      {"weights", std::string(name_of(weight_dtype()))},
      {"cache_type_k", std::string(name_of(cache_type(flags_.cache_types.k, weight_dtype())))},
      {"cache_type_v", std::string(name_of(cache_type(flags_.cache_types.v, weight_dtype())))},
      {"chunk_len", flags_.chunk_len},
      {"block_size", flags_.block_size}};
}

StepDone StepRunner::run(const StepCommand& command) {
  StepResult result = worker_.step(command);
  if (const auto* failed = std::get_if<StepFailed>(&result)) {
    throw Error(failed->code, failed->message);
  }
  return std::get<StepDone>(std::move(result));
}

}  // namespace longhaul
