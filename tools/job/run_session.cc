#include "tools/job/run_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/file_wait.h"
#include "base/host_memory.h"
#include "base/print_stderr.h"
#include "base/sha256.h"
#include "build_info.h"
#include "model/unread_tensors.h"
#include "tools/job/input_errors.h"
#include "tools/job/plan_files.h"
#include "tools/job/run_caches.h"
#include "tools/job/run_identity.h"
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
    print_stderr(
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

void warn_about_config(const RunSession& session) {
  const std::vector<std::string>& unknown = session.model->config().unknown_keys;
  if (unknown.empty()) return;
  print_stderr(
      "longhaul: warning: {} has fields that Longhaul does not know and leaves out: {}. If "
      "they change what the model computes, its answers are wrong\n",
      (session.model->path() / "config.json").string(), fmt::join(unknown, ", "));
}

void warn_about_generation_config(const RunSession& session, const AnswerConfig& answers) {
  const GenerationConfig& generation = session.model->generation();
  const std::string file = (session.model->path() / "generation_config.json").string();
  const bool draws = session.preparation.defaults.params.temperature > 0;
  const auto lacking = lacking_settings(generation, draws ? Picking::kDrawn : Picking::kGreedy);
  if (!lacking.empty()) {
    print_stderr(
        "longhaul: warning: {} asks for {}, which Longhaul does not have; answers are made without "
        "it\n",
        file, fmt::join(lacking, ", "));
  }
  if (!generation.do_sample && generation.repetition_penalty != 1 &&
      !answers.sampling.repetition_penalty) {
    print_stderr(
        "longhaul: warning: {} asks for repetition_penalty {}, which is taken only beside "
        "\"do_sample\": true; --repetition-penalty {} takes it for greedy answers\n",
        file, generation.repetition_penalty, generation.repetition_penalty);
  }
  if (!generation.misspelt.empty()) {
    print_stderr(
        "longhaul: warning: {} has fields that Longhaul does not know and leaves out: {}. Correct "
        "their names\n",
        file, fmt::join(generation.misspelt, ", "));
  }
}

void warn_about_weights(const ModelFolder& model) {
  if (!model.has_weights()) return;
  constexpr std::size_t kMostNamed = 8;
  std::vector<std::string> unread = read_input([&] { return unread_tensors(model); });
  const std::size_t n = unread.size();
  unread.resize(std::min(n, kMostNamed));
  if (n > 0) {
    print_stderr(
        "longhaul: warning: nobody reads {} tensors of the weights in {}: {}{}. If the model needs "
        "them, its answers are wrong\n",
        n, model.path().string(), fmt::join(unread, ", "), n > kMostNamed ? ", ..." : "");
  }
  if (read_input([&] { return has_another_head_than_the_embedding(model); })) {
    print_stderr(
        "longhaul: warning: the weights in {} hold an lm_head.weight that is not the embedding, "
        "and config.json says \"tie_word_embeddings\": true: the embedding is used, as releases "
        "of transformers before 5 do. If the head is the model's own, set it to false\n",
        model.path().string());
  }
}

}  // namespace

std::shared_ptr<const ModelFolder> open_folder(const AnswerConfig& answers) {
  return open_model_folder(answers.model, answers.hub_cache);
}

RunSession open_session(const JobConfig& job, const AnswerConfig& answers) {
  const FileWait wait(FileUse::kReadingBeforeWork, answers.model);
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
  if (job.lookup.most > 0) {
    require_can_take_back(session.heads.table,
                          job.draft_model.empty() ? "--draft-max" : "--draft-model");
  }
  session.device = describe(chosen_device(job.device));
  session.weights = source_of(folder, job);
  session.kv = formats_of(job, session.weights->weight_dtype()).kv(spec);
  session.kv.block_size = block_size_of(job);
  require_cacheable(session.heads.table, session.kv);
  session.preparation = {
      .defaults = sampling_defaults(with_endless(answers.sampling, session.heads.table),
                                    folder->generation()),
      .eos = folder->end_tokens(),
      .vocab_size = spec.vocab_size,
      .ctx_size = context_size(answers, spec, session.heads.table),
      .parse_special = answers.parse_special,
      .n_threads = job.n_threads,
      .cuts_documents = session.heads.table.cuts_documents()};
  session.preparation.texts = text_limits(answers, session.preparation.ctx_size);
  session.preparation.texts.read_limit = job.step_timeout;
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
  set_up_caches(job, answers, session);
  warn_about_config(session);
  warn_about_weights(*folder);
  warn_about_generation_config(session, answers);
  return session;
}

void print_summary(const RunSession& session) {
  const ModelSpec& spec = session.spec();
  print_stderr(
      "longhaul {}: {} ({}, {} layers), context {}, weights {}, caches {}/{}, "
      "{}\n"
      "  heads: {}\n"
      "  unless a request says otherwise: {}, {}\n",
      build_info::kVersion, session.model->path().string(), spec.model_type, spec.n_layers,
      context_in_words(session.preparation.ctx_size), name_of(session.weights->weight_dtype()),
      name_of(session.kv.k_type), name_of(session.kv.v_type), session.device,
      describe_briefly(session.heads.table), describe(session.preparation.defaults),
      longest_answer_in_words(session.preparation.defaults.max_tokens));
  if (session.draft) print_stderr("  draft model: {}\n", describe(*session.draft));
  const std::string refusal = huge_pages_refusal();
  if (!refusal.empty()) print_stderr("  memory in small pages: {}\n", refusal);
}

}  // namespace longhaul
