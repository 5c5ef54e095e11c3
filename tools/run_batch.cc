// `longhaul run -i requests.jsonl -o results.jsonl`: everything is read and checked before anything
// is computed; every finished request is on disk, or written to standard output, before the next
// result is looked at.
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_log.h"
#include "base/log.h"
#include "base/print_stderr.h"
#include "build_info.h"
#include "coordinator/documents.h"
#include "coordinator/journal.h"
#include "coordinator/requests.h"
#include "coordinator/unfinished_answers.h"
#include "kernels/cpu/isa.h"
#include "tools/batch_input.h"
#include "tools/job/checkpoints.h"
#include "tools/job/exit_status.h"
#include "tools/job/run_groups.h"
#include "tools/job/run_session.h"
#include "tools/job/stop_signal.h"
#include "tools/job/time_limit.h"
#include "tools/progress_display.h"
#include "tools/result_writer.h"
#include "tools/run_modes.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

bool is_stream(const fs::path& path) { return path == "-"; }

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Json manifest_of(const RunSession& session, const RunOptions& options, std::int64_t started) {
  return JsonObject{{"format", "longhaul-results"},
                    {"format_version", 1},
                    {"created", started},
                    {"producer", fmt::format("longhaul {}", build_info::kVersion)},
                    {"isa", std::string(name_of(active_isa()))},
                    {"model", options.answers.model},
                    {"requests", options.input.string()},
                    {"system_fingerprint", session.system_fingerprint},
                    {"fingerprint", session.fingerprint}};
}

void refuse_bad_output(const RunOptions& options) {
  if (is_stream(options.output)) return;
  std::error_code ignored;
  require(!fs::equivalent(options.input, options.output, ignored),
          "the results would be written over the requests: give -o another name");
  const fs::path folder =
      options.output.has_parent_path() ? options.output.parent_path() : fs::path(".");
  require(fs::is_directory(folder),
          fmt::format("-o {}: there is no folder {}", options.output.string(), folder.string()));
}

struct Counts {
  std::int64_t n_ok = 0;
  std::int64_t n_failed = 0;
  std::size_t n_bad_lines = 0;
};

// out.jsonl -> out.checkpoints, as the other files beside the results.
fs::path checkpoint_folder(const fs::path& results) {
  return journal_paths(results).manifest.replace_extension().replace_extension(".checkpoints");
}

// With or without --overwrite.
void refuse_output_over_documents(const RunOptions& options, const InputBatch& batch) {
  if (is_stream(options.output)) return;
  const JournalPaths paths = journal_paths(options.output);
  for (const fs::path& made : {paths.results, paths.errors, paths.manifest, paths.unfinished}) {
    std::error_code ignored;
    if (!fs::exists(made, ignored)) continue;
    for (const auto& [document, sha256] : batch.documents.sha256_of_file) {
      require(!fs::equivalent(made, document, ignored),
              fmt::format("{} is a document of these requests, and would be written over: give -o "
                          "another name",
                          document));
    }
  }
}

// What an earlier run left of the answers that are still to be made; none to standard output.
std::optional<UnfinishedAnswers> open_unfinished(const RunOptions& options,
                                                 const std::vector<RequestIdentity>& identities,
                                                 const Journal::ToDo& todo) {
  if (is_stream(options.output)) return std::nullopt;
  std::vector<RequestIdentity> to_do;
  if (!options.overwrite)
    for (const std::size_t request : todo.requests) to_do.push_back(identities[request]);
  UnfinishedAnswers unfinished(journal_paths(options.output).unfinished);
  unfinished.keep_only(to_do);
  return unfinished;
}

// The last line of a run, and its exit status.
int report(const RunOptions& options, const Journal::ToDo& todo, const Counts& counts,
           bool complete, const ResultWriter& writer) {
  const std::int64_t n_done = counts.n_ok + todo.n_done;
  const std::int64_t n_failed = counts.n_failed + todo.n_failed;
  if (!complete) {
    const std::int64_t n_left =
        static_cast<std::int64_t>(todo.requests.size()) - counts.n_ok - counts.n_failed;
    print_stderr("longhaul: stopped early{}: {} done, {} failed, {} left{}\n",
                 if_time_is_over(options.end_time), n_done, n_failed, n_left,
                 writer.is_resumable() ? "; run the same command again to go on" : "");
    return kExitStopped;
  }
  std::string text = fmt::format("longhaul: {} done{}", n_done, writer.place_of_results());
  if (n_failed > 0) text += fmt::format(", {} failed", n_failed);
  if (counts.n_bad_lines > 0)
    text += fmt::format(", {} bad line{} skipped", counts.n_bad_lines,
                        counts.n_bad_lines == 1 ? "" : "s");
  const bool all_good = n_failed == 0 && counts.n_bad_lines == 0;
  if (!all_good) text += writer.place_of_errors();
  if (n_failed > 0 && writer.is_resumable()) text += " (--retry-errors runs them again)";
  print_stderr("{}\n", text);
  return all_good ? kExitDone : kExitSomeFailed;
}

ResultWriter open_writer(const RunSession& session, const RunOptions& options, OpenMode mode,
                         std::int64_t started) {
  if (is_stream(options.output)) return {};
  return {journal_paths(options.output), manifest_of(session, options, started), mode,
          options.accept_edited ? EditedLines::kAccept : EditedLines::kRefuse};
}

std::vector<std::string> records_of(const std::vector<Problem>& problems) {
  std::vector<std::string> records;
  for (const Problem& problem : problems) records.push_back(bad_line_record(problem));
  return records;
}

}  // namespace

int run_batch(const RunOptions& options, JobRanks& ranks, SharedFolders& folders,
              StatusBoard& status) {
  refuse_bad_output(options);
  const OpenMode mode = options.overwrite ? OpenMode::kOverwrite : OpenMode::kResume;
  const std::optional<std::int64_t> first =
      is_stream(options.output) ? std::nullopt : first_start(journal_paths(options.output), mode);
  const std::int64_t started = first.value_or(unix_time());
  AnswerConfig answers = options.answers;
  const bool has_own_folder = answers.checkpoint_dir.empty() && !is_stream(options.output);
  if (has_own_folder) answers.checkpoint_dir = checkpoint_folder(options.output);
  if (answers.sampling.draws_seed && !is_stream(options.output)) {
    if (const auto seed = first_seed(journal_paths(options.output), mode))
      answers.sampling.seed = seed;
  }
  answers.chat.started = started;  // a run that goes on writes the same date into its prompts
  using Folder = Checkpoints::Folder;
  Checkpoints checkpoints(answers.checkpoint_dir,
                          has_own_folder ? Folder::kOfThisRun : Folder::kShared);
  RunSession session = open_session(options.job, answers);
  session.engine.checkpoints = checkpoints.hooks();
  InputBatch batch = read_batch(options.input, session.preparation.texts);
  add_missing_templates(session.preparation, batch);
  options.skip_bad_lines ? skip_bad_lines(batch) : refuse_problems(batch);
  refuse_output_over_documents(options, batch);
  if (!options.log.quiet) print_summary(session);

  ResultWriter writer = open_writer(session, options, mode, started);
  const Journal::ToDo todo = writer.plan(batch.identities, options.retry_errors);
  std::optional<UnfinishedAnswers> unfinished = open_unfinished(options, batch.identities, todo);
  Counts counts{.n_bad_lines = batch.problems.size()};
  const auto start_writing = [&] {
    writer.start();
    writer.set_bad_lines(records_of(batch.problems));
    if (unfinished) unfinished->write();
  };
  if (todo.n_done + todo.n_failed > 0 && !options.log.quiet) {
    print_stderr("longhaul: continuing: {} of {} requests are done, {} failed earlier\n",
                 todo.n_done, batch.requests.size(), todo.n_failed);
  }
  if (todo.requests.empty()) {
    start_writing();
    checkpoints.run_is_complete();
    return report(options, todo, counts, /*complete=*/true, writer);
  }
  require_shared_folders(options.answers, session, ranks, folders);

  auto groups = group_by_documents(batch.requests, todo.requests, batch.documents, batch.folder);
  if (ranks.n_ranks > 1) sort_longest_first(groups);
  ProgressTotals totals{.group_bytes = {},
                        .n_requests = static_cast<std::int64_t>(todo.requests.size())};
  for (const RequestGroup& group : groups) totals.group_bytes.push_back(group.n_bytes);
  Progress progress(std::move(totals));
  ProgressDisplay display(options.log);

  EngineCallbacks callbacks;
  if (unfinished && !session.heads.table.chooses_in_answers()) {
    callbacks.picked_before = [&](std::size_t request) {
      return unfinished->find(batch.identities[request]);
    };
    callbacks.on_unfinished = [&](const std::vector<UnfinishedAnswer>& answers_so_far) {
      for (const UnfinishedAnswer& answer : answers_so_far)
        unfinished->set(batch.identities[answer.request], answer.tokens);
      unfinished->write();
    };
  }
  callbacks.on_done = [&](const PreparedRequest& prepared, const std::vector<Answer>& made) {
    display.clear();  // lines and progress may go to one terminal
    const std::string line = result_line({.identity = &batch.identities[prepared.index],
                                          .prepared = &prepared,
                                          .answers = &made,
                                          .model = options.answers.model,
                                          .system_fingerprint = session.system_fingerprint,
                                          .created = unix_time()});
    const Stopwatch writing;
    writer.add_result(line);
    status.add_write(writing.seconds());
    if (unfinished) unfinished->forget(batch.identities[prepared.index]);
    ++counts.n_ok;
    LONGHAUL_LOG(kInfo, kRun, "event=request_done id={} prompt_tokens={} answers={}",
                 batch.requests[prepared.index].custom_id, prepared.n_prompt_tokens, made.size());
    log_event("request_done", {{"custom_id", batch.requests[prepared.index].custom_id},
                               {"prompt_tokens", prepared.n_prompt_tokens},
                               {"new_tokens", made.front().n_generated()}});
  };
  callbacks.on_failed = [&](const FailedRequest& failure) {
    display.clear();
    writer.add_error(error_line(batch.identities[failure.index], failure.code, failure.message));
    ++counts.n_failed;
    if (unfinished) unfinished->forget(batch.identities[failure.index]);
    status.add_failure({batch.requests[failure.index].custom_id, failure.code, failure.message});
    LONGHAUL_LOG(kInfo, kRun, "event=request_failed id={} code={}",
                 batch.requests[failure.index].custom_id, failure.code);
    log_event("request_failed",
              {{"custom_id", batch.requests[failure.index].custom_id}, {"code", failure.code}});
  };
  callbacks.on_note = [&](const std::string& text) { display.note(text); };
  callbacks.on_warning = [&](const std::string& text) { display.warn(text); };
  callbacks.on_progress = [&](const Progress& now) { display.update(now); };
  callbacks.stop_requested = stop_requested;
  bool complete = false;
  try {
    complete = run_groups({.session = &session,
                           .config = &options.job,
                           .groups = &groups,
                           .requests = &batch.requests,
                           .progress = &progress,
                           .status = &status,
                           .on_start = start_writing,
                           .callbacks = std::move(callbacks),
                           .report = options.report,
                           .kv_methods = kv_methods(options),
                           .save_cluster = options.save_cluster,
                           .end = end_of_job(options.end_time),
                           .explains_plan = options.verbose,
                           .tell = [&](std::string_view lines) { display.tell(lines); }},
                          ranks);
  } catch (...) {
    // What is unfinished belongs to the settings that the manifest names.
    if (!unfinished || unfinished->size() == 0) writer.remove_if_empty();
    throw;
  }
  display.finish(progress);
  writer.verify();
  if (unfinished) unfinished->write();
  if (complete) checkpoints.run_is_complete();
  if (const std::string text = checkpoints.summary(); !text.empty()) display.note(text);
  return report(options, todo, counts, complete, writer);
}

}  // namespace longhaul
