// `longhaul run -i requests.jsonl -o results.jsonl`: everything is read and checked before anything
// is computed; every finished request is on disk before the next result is looked at.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/file.h"
#include "build_info.h"
#include "coordinator/documents.h"
#include "coordinator/journal.h"
#include "coordinator/requests.h"
#include "kernels/cpu/isa.h"
#include "tools/job/exit_status.h"
#include "tools/job/run_groups.h"
#include "tools/job/run_session.h"
#include "tools/job/stop_signal.h"
#include "tools/progress_display.h"
#include "tools/run_modes.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

struct InputBatch {
  std::vector<Request> requests;
  CheckedDocuments documents;
  std::vector<RequestIdentity> identities;
};

[[noreturn]] void refuse_input(std::vector<Problem> problems, const std::string& source) {
  constexpr std::size_t kShown = 100;
  std::stable_sort(problems.begin(), problems.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
  std::string text = fmt::format("{} problems in {}; nothing was run\n", problems.size(), source);
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i)
    text += fmt::format("  {}\n", describe(problems[i], source));
  if (problems.size() > kShown) text += fmt::format("  and {} more\n", problems.size() - kShown);
  text.pop_back();
  throw Error(ErrorCode::kCorruptData, text);
}

MappedFile open_input(const fs::path& path) {
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCorruptData, error.what());
  }
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

InputBatch read_batch(const fs::path& input) {
  const std::string source = input.string();
  const MappedFile file = open_input(input);
  ParsedRequests parsed = parse_requests(file.text(), source);
  InputBatch batch;
  batch.documents = check_documents(parsed.requests, folder_of(input));
  auto& problems = parsed.problems;
  problems.insert(problems.end(), batch.documents.problems.begin(), batch.documents.problems.end());
  if (!problems.empty()) refuse_input(std::move(problems), source);
  if (parsed.requests.empty()) throw Error(ErrorCode::kCorruptData, source + " holds no requests");
  batch.requests = std::move(parsed.requests);
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    batch.identities.push_back(
        {batch.requests[i].custom_id, batch.requests[i].body_sha256, batch.documents.digests[i]});
  }
  return batch;
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Conversations need a template; where there is none, each of them is a problem of the file.
void refuse_chats_without_template(const InputBatch& batch, const PreparationConfig& preparation,
                                   const std::string& source) {
  if (preparation.chat != nullptr) return;
  std::vector<Problem> problems;
  for (const Request& request : batch.requests) {
    if (request.chat() != nullptr) problems.push_back({request.line, preparation.no_chat_reason});
  }
  if (!problems.empty()) refuse_input(std::move(problems), source);
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

void refuse_output_over_input(const RunOptions& options) {
  std::error_code ignored;
  require(!fs::equivalent(options.input, options.output, ignored),
          "the results would be written over the requests: give -o another name");
  const fs::path folder = folder_of(options.output);
  require(fs::is_directory(folder),
          fmt::format("-o {}: there is no folder {}", options.output.string(), folder.string()));
}

// The last line of a run, and its exit status.
int report(const Journal::ToDo& todo, std::int64_t n_ok, std::int64_t n_failed, bool complete,
           const JournalPaths& paths) {
  const std::int64_t failed = n_failed + todo.n_failed;
  if (!complete) {
    fmt::print(stderr,
               "longhaul: stopped early: {} done, {} failed, {} left; run the same command again "
               "to go on\n",
               n_ok + todo.n_done, failed,
               static_cast<std::int64_t>(todo.requests.size()) - n_ok - n_failed);
    return kExitStopped;
  }
  if (failed > 0) {
    fmt::print(stderr,
               "longhaul: {} done in {}, {} failed: see {} (--retry-errors runs them again)\n",
               n_ok + todo.n_done, paths.results.string(), failed, paths.errors.string());
    return kExitSomeFailed;
  }
  fmt::print(stderr, "longhaul: {} done in {}\n", n_ok + todo.n_done, paths.results.string());
  return kExitDone;
}

}  // namespace

int run_batch(const RunOptions& options, JobRanks& ranks) {
  refuse_output_over_input(options);
  const InputBatch batch = read_batch(options.input);
  const JournalPaths paths = journal_paths(options.output);
  const OpenMode mode = options.overwrite ? OpenMode::kOverwrite : OpenMode::kResume;
  const std::int64_t started = first_start(paths, mode).value_or(unix_time());
  AnswerConfig answers = options.answers;
  answers.chat.started = started;  // a run that goes on writes the same date into its prompts
  const RunSession session = open_session(options.job, answers);
  refuse_chats_without_template(batch, session.preparation, options.input.string());
  print_summary(session);

  Journal journal(paths, manifest_of(session, options, started), mode);
  const Journal::ToDo todo = journal.plan(batch.identities, options.retry_errors);
  if (todo.n_done + todo.n_failed > 0) {
    fmt::print(stderr, "longhaul: continuing: {} of {} requests are done, {} failed earlier\n",
               todo.n_done, batch.requests.size(), todo.n_failed);
  }
  if (todo.requests.empty()) return report(todo, 0, 0, /*complete=*/true, paths);

  auto groups =
      group_by_documents(batch.requests, todo.requests, batch.documents, folder_of(options.input));
  if (ranks.n_ranks > 1) sort_longest_first(groups);
  ProgressTotals totals{.group_bytes = {},
                        .n_requests = static_cast<std::int64_t>(todo.requests.size())};
  for (const RequestGroup& group : groups) totals.group_bytes.push_back(group.n_bytes);
  Progress progress(std::move(totals));
  ProgressDisplay display(!options.log.no_progress, options.log.file.empty());

  std::int64_t n_ok = 0;
  std::int64_t n_failed = 0;
  EngineCallbacks callbacks;
  callbacks.on_done = [&](const PreparedRequest& prepared, const Answer& answer) {
    journal.add_result(result_line({.identity = &batch.identities[prepared.index],
                                    .prepared = &prepared,
                                    .answer = &answer,
                                    .model = options.answers.model,
                                    .system_fingerprint = session.system_fingerprint,
                                    .created = unix_time()}));
    ++n_ok;
  };
  callbacks.on_failed = [&](const FailedRequest& failure) {
    journal.add_error(error_line(batch.identities[failure.index], failure.code, failure.message));
    ++n_failed;
  };
  callbacks.on_progress = [&](const Progress& now) { display.update(now); };
  callbacks.stop_requested = stop_requested;
  const bool complete = run_groups({.session = &session,
                                    .config = &options.job,
                                    .groups = &groups,
                                    .requests = &batch.requests,
                                    .progress = &progress,
                                    .callbacks = std::move(callbacks),
                                    .report = options.report,
                                    .explains_plan = options.verbose},
                                   ranks);
  display.finish(progress);
  return report(todo, n_ok, n_failed, complete, paths);
}

}  // namespace longhaul
