// What both evaluations work with: a model, opened, and a worker that does as it is told.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "tools/cache_types.h"
#include "worker/worker.h"

namespace longhaul {

// Flags that both evaluations share with `longhaul run`.
struct EvalModelFlags {
  std::string model;
  std::string device = "cpu";  // cpu, cuda or auto
  int n_threads = 0;
  std::int64_t chunk_len = 2048;
  std::string weights = "auto";
  CacheTypeFlags cache_types;
  std::int64_t block_size = 64;
  std::string kv_limit;
};

// Immutable once opened.
class EvalModel {
 public:
  // Reads configuration, tokenizer and weights.
  explicit EvalModel(const EvalModelFlags& flags);

  const ModelFolder& folder() const { return folder_; }
  const ModelSpec& spec() const { return folder_.config().spec; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const EvalModelFlags& flags() const { return flags_; }
  // What stands in front of every text, such as <s>.
  const std::vector<std::int32_t>& start() const { return start_; }
  bool is_end(std::int32_t token) const;
  // Text alone, without what stands in front of it.
  std::vector<std::int32_t> encode(std::string_view text, bool parse_special = false) const;
  WorkerConfig worker_config(const HeadRoles& roles) const;
  // "MODEL (llama, 4 layers of 4 KV heads, weights bf16)"
  std::string description() const;
  Json settings() const;

 private:
  DType weight_dtype() const { return weights_->layer(0).down.dtype; }  // in memory

  EvalModelFlags flags_;
  ModelFolder folder_;
  Tokenizer tokenizer_;
  std::shared_ptr<const Weights> weights_;
  std::vector<std::int32_t> start_;
  std::vector<std::int32_t> ends_;
};

// A worker whose failures are exceptions.
class StepRunner {
 public:
  explicit StepRunner(const WorkerConfig& config) : worker_(config) {}
  // Throws Error with the worker's code and message.
  StepDone run(const StepCommand& command);

 private:
  Worker worker_;
};

}  // namespace longhaul
