// The small model that guesses answers for the run's model: opened and checked before anything is
// computed, then a worker in the process that leads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "tools/job/job_config.h"
#include "tools/job/local_replica.h"
#include "tools/job/model_source.h"

namespace longhaul {

struct DraftSession {
  std::shared_ptr<ModelSource> weights;
  DraftConfig config;
  std::int64_t context = 0;   // tokens that it reads of a text
  std::int64_t kv_bytes = 0;  // that its caches take at most
  std::int64_t n_bytes = 0;   // weights, caches and buffers
};

// What it guesses for.
struct DraftedModel {
  std::shared_ptr<const ModelFolder> folder;
  const Tokenizer* tokenizer = nullptr;
};

// Opens config.draft_model, whose weights will have the type that the run's have. Throws
// kInvalidArgument, by name, for what it cannot be combined with: other tokens, GPUs, several
// replicas.
DraftSession open_draft(const JobConfig& config, const DraftedModel& model,
                        const std::filesystem::path& hub_cache);

// "path (llama, 4 layers), weights bf16, the newest 4096 tokens of each text, 512 MiB in the
// process that leads"
std::string describe(const DraftSession& draft);

// Makes its worker, where there is a draft model, and tells the one engine of the run. The worker
// must outlive the engine. Reads the weights.
std::unique_ptr<LocalReplica> start_draft(const std::optional<DraftSession>& draft,
                                          const JobConfig& config,
                                          std::vector<EngineConfig>& engines);

}  // namespace longhaul
