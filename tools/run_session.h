// What a run works with, opened and checked: the model's files, tokenizer, head roles, limits. Both
// ways of running (a file of requests, one question) start from it.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "coordinator/engine.h"
#include "coordinator/preparation.h"
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "tools/run_options.h"
#include "worker/worker.h"

namespace longhaul {

struct RunSession {
  ModelFolder model;
  Tokenizer tokenizer;
  HeadRoles roles;
  std::optional<HeadProfile> profile;  // that the roles were chosen from
  DType weights = DType::kF32;         // of the matrices, in memory
  std::string device = {};             // that computes, in words; of several ranks the first one's
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  PreparationConfig preparation;
  EngineConfig engine;
  Json fingerprint;                // what results depend on
  std::string system_fingerprint;  // of version and fingerprint, short
};

// Opens everything but the weights. Throws Error of every kind; nothing is written, but the folder
// for saved caches is made.
RunSession open_session(const RunOptions& options);

// Reads the weights.
WorkerConfig worker_config(const RunSession& session, const RunOptions& options);

// Tells on stderr what will run: model, heads, sampling, context.
void print_summary(const RunSession& session);

}  // namespace longhaul
