// What a run works with, opened and checked: the model's files, tokenizer, head roles, limits. Both
// ways of running (a file of requests, one question) start from it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "coordinator/engine.h"
#include "coordinator/preparation.h"
#include "coordinator/sampling.h"
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "partition/kv_format.h"
#include "tools/job/chat_setup.h"
#include "tools/job/draft_session.h"
#include "tools/job/head_settings.h"
#include "tools/job/job_config.h"
#include "tools/job/model_source.h"

namespace longhaul {

// What is to be answered with, besides how the job runs.
struct AnswerConfig {
  std::string model;                // as the user wrote it: a folder, or org/name[@revision]
  std::filesystem::path hub_cache;  // where downloaded models lie
  HeadSettings heads;
  std::optional<std::int64_t> ctx_size;  // of documents, prompt and answer; not given: the model's
  SamplingFlags sampling;                // for requests that say nothing themselves
  bool parse_special = false;            // special tokens written in texts count as such
  bool lossy_text = false;               // documents that are no UTF-8 are accepted
  std::filesystem::path save_kv;         // a folder; empty: documents' caches are not saved
  std::filesystem::path load_kv;         // a folder with saved caches; empty: none but save_kv's
  bool kv_convert = false;               // saved caches of other types are converted
  // Where documents are saved while they are read; empty: nowhere.
  std::filesystem::path checkpoint_dir;
  CheckpointEvery checkpoint_every;
  ChatConfig chat;
};

struct RunSession {
  std::shared_ptr<const ModelFolder> model;
  std::shared_ptr<ModelSource> weights;
  Tokenizer tokenizer;
  ChosenHeads heads;
  std::string device = {};  // that computes, in words; of several ranks the first one's
  KvFormat kv = {};         // of its caches
  PreparationConfig preparation;
  EngineConfig engine;  // of one rank alone
  std::optional<DraftSession> draft;
  Json fingerprint;                // what results depend on
  std::string system_fingerprint;  // of version and fingerprint, short

  const ModelSpec& spec() const { return model->config().spec; }
};

// Opens everything but the weights. Throws Error of every kind; nothing is written, but the folder
// for saved caches is made.
RunSession open_session(const JobConfig& job, const AnswerConfig& answers);

// The model's folder, and its weights as `job` wants them in memory.
std::shared_ptr<const ModelFolder> open_folder(const AnswerConfig& answers);

// Tells on stderr what will run: model, heads, sampling, context.
void print_summary(const RunSession& session);

}  // namespace longhaul
