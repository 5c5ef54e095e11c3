#include "tools/job/run_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "base/host_memory.h"
#include "base/sha256.h"
#include "build_info.h"
#include "coordinator/fingerprint.h"
#include "model/heads/heads_json.h"
#include "tools/job/input_errors.h"
#include "tools/job/saved_documents.h"
#include "tools/job/stop_signal.h"

namespace longhaul {
namespace {

KvBudget kv_budget(const JobConfig& job, const HeadTable& heads, const KvFormat& kv) {
  KvBudget budget;
  budget.limit_bytes = job.kv_limit_bytes.value_or(KvBudget::kNoLimit);
  budget.heads = heads;
  budget.bytes_per_head_and_token = static_cast<std::size_t>(kv.token_bytes());
  budget.open_bytes_per_head_and_token =
      static_cast<std::size_t>(kv.open_block_bytes() / kv.block_size);
  budget.block_size = kv.block_size;
  budget.chunk_len = usual_chunk_len(job, 1);
  budget.n_guesses = heads.can_take_back() ? most_guesses(job) : 0;
  return budget;
}

// No head keeps every token, so neither memory nor, with positions in the cache, what the model has
// learned bounds a text.
bool all_forget(const HeadTable& heads) { return heads.count(HeadKind::kRetrieval) == 0; }

constexpr std::int64_t kEndless = -1;  // as --max-tokens has it

// An answer that nothing but a stop ends: of so many tokens that no machine comes to their end.
constexpr std::int64_t kUntilStopped = Workload::kMaxTokens / 2;

SamplingFlags with_endless(SamplingFlags sampling, const HeadTable& heads) {
  if (sampling.max_tokens != kEndless) return sampling;
  require(all_forget(heads),
          "--max-tokens -1: an answer without end needs heads that all forget, such as with "
          "--policy streaming or --policy infinite");
  sampling.max_tokens = kUntilStopped;
  return sampling;
}

// For people: how long texts and answers may be.
std::string context_in_words(std::int64_t n_tokens) {
  return n_tokens == Workload::kMaxTokens ? "without limit" : fmt::format("{} tokens", n_tokens);
}
std::string longest_answer_in_words(std::int64_t n_tokens) {
  return n_tokens == kUntilStopped ? "answers without end"
                                   : fmt::format("at most {} new tokens", n_tokens);
}

std::int64_t context_size(const AnswerConfig& answers, const ModelSpec& spec,
                          const HeadTable& heads) {
  const bool by_method = !answers.heads.methods.empty() && all_forget(heads);
  if (!answers.ctx_size && by_method) return Workload::kMaxTokens;
  const std::int64_t size = answers.ctx_size.value_or(spec.max_seq_len);
  if (size > spec.max_seq_len) {
    fmt::print(stderr,
               "longhaul: warning: --ctx-size {} is more than the {} tokens that the model was "
               "made for; answers about later tokens may be poor\n",
               size, spec.max_seq_len);
  }
  return size;
}

// No text has so many bytes for each token that more than this fits into the context: such a file
// is not even opened.
TextLimits text_limits(const AnswerConfig& answers, std::int64_t ctx_size) {
  constexpr std::size_t kBytesPerToken = 1024;
  constexpr std::size_t kLeast = std::size_t{64} << 20;
  TextLimits limits;
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;  // of heads that forget, any number
  limits.max_bytes =
      std::max(kLeast, kBytesPerToken * static_cast<std::size_t>(std::min(ctx_size, kMostTokens)));
  limits.lossy = answers.lossy_text;
  limits.stop_requested = stop_requested;
  return limits;
}

std::vector<std::int32_t> end_tokens(const ModelFolder& model) {
  std::set<std::int32_t> ids(model.config().eos_token_ids.begin(),
                             model.config().eos_token_ids.end());
  ids.insert(model.generation().eos_token_ids.begin(), model.generation().eos_token_ids.end());
  return {ids.begin(), ids.end()};
}

// Only where the user says a method: what runs without one wrote is as it was.
void add_methods(const AnswerConfig& answers, const ChosenHeads& heads, JsonObject& object) {
  if (!answers.heads.methods.empty()) object.emplace_back("head_policies", to_json(heads.table));
}

// Only where the files' type was changed: results of runs that leave it alone are as they were.
void add_weights(const JobConfig& job, JsonObject& object) {
  if (job.weights) object.emplace_back("weights", std::string(name_of(*job.weights)));
  if (job.fp8_inputs == Fp8Inputs::kQuantised) object.emplace_back("fp8_activations", true);
}

// Likewise.
void add_stop(const AnswerConfig& answers, JsonObject& object) {
  if (answers.sampling.stop.empty()) return;
  JsonArray stop;
  for (const std::string& text : answers.sampling.stop) stop.emplace_back(text);
  object.emplace_back("default_stop", std::move(stop));
}

// Likewise.
void add_reproducible(const JobConfig& job, JsonObject& object) {
  if (job.reproducible) object.emplace_back("reproducible", true);
}

Json fingerprint_of(const RunSession& session, const JobConfig& job, const AnswerConfig& answers) {
  Json sampling = to_json(session.preparation.defaults.params, session.preparation.defaults.rules);
  JsonArray eos;
  for (const std::int32_t id : session.preparation.eos) eos.emplace_back(id);
  JsonObject settings{{"default_sampling", std::move(sampling)},
                      {"default_max_tokens", session.preparation.defaults.max_tokens},
                      {"end_tokens", std::move(eos)},
                      {"parse_special", session.preparation.parse_special},
                      {"cache_type_k", std::string(name_of(session.kv.k_type))},
                      {"cache_type_v", std::string(name_of(session.kv.v_type))},
                      {"heads", to_json(session.heads.roles)}};
  if (const ChatSetup* chat = session.preparation.chat.get())
    settings.emplace_back("chat_template_sha256", sha256_of(chat->usual.text()));
  add_methods(answers, session.heads, settings);
  add_weights(job, settings);
  add_stop(answers, settings);
  add_reproducible(job, settings);
  return JsonObject{{"model", model_fingerprint(*session.model)},
                    {"settings", std::move(settings)}};
}

// What caches depend on besides the tokens.
std::string identity_of(const RunSession& session, const JobConfig& job,
                        const AnswerConfig& answers) {
  const JsonField settings = JsonField(session.fingerprint, "fingerprint").at("settings");
  JsonObject what{{"model", *session.fingerprint.find("model")},
                  {"cache_type_k", settings.at("cache_type_k").json()},
                  {"cache_type_v", settings.at("cache_type_v").json()},
                  {"heads", settings.at("heads").json()}};
  add_methods(answers, session.heads, what);
  add_weights(job, what);
  add_reproducible(job, what);
  return to_text(Json(std::move(what)));
}

void require_hdf5(std::string_view flag) {
  if (build_info::kHasHdf5) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} needs HDF5, and this build of Longhaul has none; install its "
                          "development files (Debian: libhdf5-openmpi-dev) and build again",
                          flag));
}

SaveCaches caches_in(const std::filesystem::path& folder, const RunSession& session,
                     const JobConfig& job, const AnswerConfig& answers) {
  const Json& model = *session.fingerprint.find("model");
  const std::string identity = identity_of(session, job, answers);
  const Json* tokenizer = model.find("tokenizer_sha256");
  return SaveCaches{
      .folder = folder.string(),
      .identity = identity,
      .facts = {{"model_id", answers.model},
                {"model_sha256", sha256_of(to_text(model))},
                {"tokenizer_sha256", JsonField(*tokenizer, "tokenizer_sha256").as_string()},
                {"settings", identity}}};
}

// Documents' caches go to --save-kv DIR; what cannot work is refused before anything is computed.
std::optional<SaveCaches> saving(const RunSession& session, const JobConfig& job,
                                 const AnswerConfig& answers) {
  if (answers.save_kv.empty()) return std::nullopt;
  require_hdf5("--save-kv");
  std::error_code error;
  std::filesystem::create_directories(answers.save_kv, error);
  if (error || ::access(answers.save_kv.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("--save-kv {}: files cannot be made in this folder",
                                            answers.save_kv.string()));
  }
  return caches_in(answers.save_kv, session, job, answers);
}

bool has_checkpoints(const AnswerConfig& answers) {
  return !answers.checkpoint_dir.empty() && build_info::kHasHdf5 &&
         answers.checkpoint_every.unit != CheckpointEvery::Unit::kNever;
}

// Documents begin with saved caches of --load-kv DIR, which must fit, and of --save-kv DIR and
// checkpoints, where they do.
std::function<std::vector<SavedStart>(std::span<const std::int32_t>)> loading(
    const RunSession& session, const JobConfig& job, const AnswerConfig& answers) {
  std::vector<SavedFolder> folders;
  if (!answers.load_kv.empty()) {
    require_hdf5("--load-kv");
    if (!std::filesystem::is_directory(answers.load_kv)) {
      throw Error(ErrorCode::kIo,
                  fmt::format("--load-kv {}: there is no such folder", answers.load_kv.string()));
    }
    folders.push_back({.path = answers.load_kv, .must_work = true});
  }
  std::error_code ignored;
  if (!answers.save_kv.empty() &&
      !std::filesystem::equivalent(answers.save_kv, answers.load_kv, ignored))
    folders.push_back({.path = answers.save_kv});
  if (has_checkpoints(answers))
    folders.push_back({.path = answers.checkpoint_dir, .has_checkpoints = true});
  if (folders.empty()) return {};
  WantedCaches wanted{.identity = identity_of(session, job, answers),
                      .k_type = session.kv.k_type,
                      .v_type = session.kv.v_type,
                      .block_size = session.kv.block_size,
                      .rope_theta = session.spec().rope_theta,
                      .converts = answers.kv_convert,
                      .cuts_documents = session.heads.table.cuts_documents()};
  const auto saved = std::make_shared<SavedDocuments>(std::move(folders), std::move(wanted));
  return [saved](std::span<const std::int32_t> document) { return saved->starts_of(document); };
}

void check_lookup(const JobConfig& job, const HeadTable& heads) {
  if (job.lookup.most == 0 || heads.can_take_back()) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format(
          "{}: a wrong guess cannot be taken back where a method drops tokens at every "
          "step (h2o, fastgen, tova:after=token), merges them (dmc), reads chosen pages (quest) or "
          "sums up what has left (razor); "
          "leave it out, or use another --policy",
          job.draft_model.empty() ? "--draft-max" : "--draft-model"));
}

void warn_about_config(const RunSession& session) {
  const std::vector<std::string>& unknown = session.model->config().unknown_keys;
  if (unknown.empty()) return;
  fmt::print(stderr,
             "longhaul: warning: {} has fields that Longhaul does not know and leaves out: {}. If "
             "they change what the model computes, its answers are wrong\n",
             (session.model->path() / "config.json").string(), fmt::join(unknown, ", "));
}

void warn_about_generation_config(const RunSession& session, const AnswerConfig& answers) {
  const GenerationConfig& generation = session.model->generation();
  if (!generation.do_sample || generation.unsupported.empty() || answers.sampling.temperature)
    return;
  fmt::print(stderr,
             "longhaul: warning: generation_config.json asks for {}, which Longhaul does not have; "
             "answers are sampled without it\n",
             fmt::join(generation.unsupported, ", "));
}

}  // namespace

std::shared_ptr<const ModelFolder> open_folder(const AnswerConfig& answers) {
  return open_model_folder(answers.model, answers.hub_cache);
}

RunSession open_session(const JobConfig& job, const AnswerConfig& answers) {
  auto folder = open_folder(answers);
  const ModelSpec& spec = folder->config().spec;
  RunSession session{.model = folder,
                     .weights = {},
                     .tokenizer = open_tokenizer(*folder),
                     .heads = choose_heads(answers.heads, spec, folder.get()),
                     .preparation = {},
                     .engine = {},
                     .draft = {},
                     .fingerprint = {},
                     .system_fingerprint = {}};
  check_lookup(job, session.heads.table);
  session.device = describe(chosen_device(job.device));
  session.weights = source_of(folder, job);
  session.kv = formats_of(job, session.weights->weight_dtype()).kv(spec);
  require_storable(session.heads.table, session.kv.k_type, session.kv.v_type);
  session.preparation = {
      .defaults = sampling_defaults(with_endless(answers.sampling, session.heads.table),
                                    folder->generation()),
      .eos = end_tokens(*folder),
      .vocab_size = spec.vocab_size,
      .ctx_size = context_size(answers, spec, session.heads.table),
      .parse_special = answers.parse_special,
      .n_threads = job.n_threads,
      .cuts_documents = session.heads.table.cuts_documents()};
  session.preparation.texts = text_limits(answers, session.preparation.ctx_size);
  set_up_chat(folder->path(), answers.chat, session.preparation);
  session.engine.scheduler = {.chunk_len = usual_chunk_len(job, 1),
                              .max_sequences = job.n_parallel,
                              .budget = kv_budget(job, session.heads.table, session.kv),
                              .lookup = job.lookup};
  session.engine.step_timeout = job.step_timeout;
  session.engine.remakes_answers = job.reproducible;
  if (!job.draft_model.empty()) {
    session.draft =
        open_draft(job, {.folder = folder, .tokenizer = &session.tokenizer}, answers.hub_cache);
    session.engine.scheduler.draft_context = session.draft->context;
  }
  session.fingerprint = fingerprint_of(session, job, answers);
  session.system_fingerprint = fmt::format("longhaul-{}-{}", build_info::kVersion,
                                           sha256_of(to_text(session.fingerprint)).substr(0, 12));
  session.engine.scheduler.save = saving(session, job, answers);
  if (has_checkpoints(answers)) {
    session.engine.scheduler.checkpoint = caches_in(answers.checkpoint_dir, session, job, answers);
    session.engine.checkpoint_every = answers.checkpoint_every;
  }
  session.engine.find_starts = loading(session, job, answers);
  warn_about_config(session);
  warn_about_generation_config(session, answers);
  return session;
}

void print_summary(const RunSession& session) {
  const ModelSpec& spec = session.spec();
  fmt::print(stderr,
             "longhaul {}: {} ({}, {} layers), context {}, weights {}, caches {}/{}, "
             "{}\n"
             "  heads: {}\n"
             "  unless a request says otherwise: {}, {}\n",
             build_info::kVersion, session.model->path().string(), spec.model_type, spec.n_layers,
             context_in_words(session.preparation.ctx_size),
             name_of(session.weights->weight_dtype()), name_of(session.kv.k_type),
             name_of(session.kv.v_type), session.device, describe_briefly(session.heads.table),
             describe(session.preparation.defaults),
             longest_answer_in_words(session.preparation.defaults.max_tokens));
  if (session.draft) fmt::print(stderr, "  draft model: {}\n", describe(*session.draft));
  const std::string refusal = huge_pages_refusal();
  if (!refusal.empty()) fmt::print(stderr, "  memory in small pages: {}\n", refusal);
}

}  // namespace longhaul
