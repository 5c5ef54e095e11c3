#include "tools/job/draft_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"
#include "model/heads/head_table.h"
#include "partition/make_plan.h"
#include "partition/memory_model.h"
#include "tools/job/input_errors.h"

namespace longhaul {
namespace {

[[noreturn]] void refuse(const JobConfig& config, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--draft-model {}: {}; leave it out, --draft-max alone guesses from the "
                          "text",
                          config.draft_model, why));
}

std::string in_quotes(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.has_text(id) ? fmt::format("\"{}\"", tokenizer.token_text(id)) : "no text";
}

// Ids go from one model to the other as they are.
void require_same_tokens(const JobConfig& config, const Tokenizer& theirs, const Tokenizer& own) {
  const std::int64_t n = std::min(theirs.vocab_size(), own.vocab_size());
  for (std::int32_t id = 0; id < n; ++id) {
    const bool is_same = own.has_text(id) == theirs.has_text(id) &&
                         own.is_special(id) == theirs.is_special(id) &&
                         (!own.has_text(id) || own.token_text(id) == theirs.token_text(id));
    if (!is_same) {
      refuse(config, fmt::format("its tokenizer differs: token {} is {} there, and {} in the "
                                 "model that answers",
                                 id, in_quotes(own, id), in_quotes(theirs, id)));
    }
  }
  if (theirs.vocab_size() != own.vocab_size()) {
    refuse(config, fmt::format("its tokenizer has {} tokens, that of the model that answers {}",
                               own.vocab_size(), theirs.vocab_size()));
  }
}

// Its caches are as its weights, whatever the run says of its own.
Workload formats_of_draft(const ModelSource& weights) {
  return formats_of(JobConfig{}, weights.weight_dtype());
}

// As the planner counts a rank.
RankBytes bytes_of(const ModelSpec& spec, const Workload& workload) {
  PlanRequest request;
  request.spec = spec;
  request.heads = dense_heads(spec);
  request.cluster = equal_cluster(1, std::int64_t{1} << 50);
  request.cluster.headroom = 0;
  request.workload = workload;
  const PlanResult result = make_plan(request);
  return memory_of(std::get<Plan>(result), spec, request.cluster, workload)[Rank{0}];
}

}  // namespace

DraftSession open_draft(const JobConfig& config, const DraftedModel& model,
                        const std::filesystem::path& hub_cache) {
  if (config.device != DeviceChoice::kCpu) refuse(config, "it computes on CPUs, not beside GPUs");
  if (config.n_replicas.value_or(1) > 1)
    refuse(config, "it guesses for one replica, and --replicas asks for several");
  const auto folder = open_model_folder(config.draft_model, hub_cache);
  require_same_tokens(config, *model.tokenizer, open_tokenizer(*folder));
  const ModelSpec& spec = folder->config().spec;
  DraftSession draft;
  JobConfig of_draft;
  of_draft.weights = config.weights;
  draft.weights = source_of(folder, of_draft);
  draft.config = {.vocab_size = std::min(spec.vocab_size, model.folder->config().spec.vocab_size)};
  draft.context = std::min(config.draft_context, spec.max_seq_len);
  require(
      draft.context >= DraftText::kLeastContext,
      fmt::format("--draft-context {} (the model was made for {} tokens): {} are the fewest that "
                  "it can guess from",
                  config.draft_context, spec.max_seq_len, DraftText::kLeastContext));
  draft.config.most_documents =
      static_cast<std::size_t>(std::min<std::int64_t>(config.n_parallel, 8));
  Workload workload = formats_of_draft(*draft.weights);
  workload.document_tokens = 0;
  workload.chunk_len = draft.config.chunk_len;
  workload.tail_tokens = draft.context;
  workload.n_guesses = config.lookup.most;
  workload.n_sequences = config.n_parallel + static_cast<std::int64_t>(draft.config.most_documents);
  const RankBytes bytes = bytes_of(spec, workload);
  draft.kv_bytes = bytes.kv_retrieval + bytes.kv_streaming;
  draft.n_bytes = draft.kv_bytes + bytes.activations + bytes.weights;
  return draft;
}

std::string describe(const DraftSession& draft) {
  const ModelSpec& spec = draft.weights->spec();
  return fmt::format(
      "{} ({}, {} layers), weights {}, the newest {} tokens of each text, {} in the process that "
      "leads",
      draft.weights->folder()->path().string(), spec.model_type, spec.n_layers,
      name_of(draft.weights->weight_dtype()), draft.context, format_byte_size(draft.n_bytes));
}

std::unique_ptr<LocalReplica> start_draft(const std::optional<DraftSession>& draft,
                                          const JobConfig& config,
                                          std::vector<EngineConfig>& engines) {
  if (!draft) return nullptr;
  require(engines.size() == 1, "a draft model guesses for one replica");
  const Workload formats = formats_of_draft(*draft->weights);
  WorkerConfig worker;
  worker.weights = draft->weights->all_layers({});
  worker.k_type = formats.k_type;
  worker.v_type = formats.v_type;
  worker.cache_limit_bytes = static_cast<std::size_t>(draft->kv_bytes);
  worker.n_threads = config.n_threads;
  worker.shares_cores = true;
  auto replica = std::make_unique<LocalReplica>(worker);
  engines.front().draft = {.config = draft->config, .link = &replica->link()};
  return replica;
}

}  // namespace longhaul
