// `longhaul run -i requests.jsonl -o results.jsonl`: everything is read and checked before anything
// is computed; every finished request is on disk, or written to standard output, before the next
// result is looked at.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_log.h"
#include "base/log.h"
#include "base/print_stderr.h"
#include "coordinator/documents.h"
#include "coordinator/journal.h"
#include "coordinator/requests.h"
#include "coordinator/unfinished_answers.h"
#include "tools/batch_input.h"
#include "tools/batch_output.h"
#include "tools/job/checkpoints.h"
#include "tools/job/exit_status.h"
#include "tools/job/run_caches.h"
#include "tools/job/run_groups.h"
#include "tools/job/run_session.h"
#include "tools/job/time_limit.h"
#include "tools/progress_display.h"
#include "tools/result_writer.h"
#include "tools/run_modes.h"
#include "tools/run_work.h"

namespace longhaul {
namespace {

struct Counts {
  std::int64_t n_ok = 0;
  std::int64_t n_failed = 0;
  std::int64_t n_for_want_of_memory = 0;  // of these
  std::size_t n_bad_lines = 0;
};

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
  if (n_failed > 0 && writer.is_resumable()) {
    text += counts.n_for_want_of_memory == n_failed
                ? " (for want of memory: the same command runs them again)"
                : " (--retry-errors runs them again)";
  }
  print_stderr("{}\n", text);
  return all_good ? kExitDone : kExitSomeFailed;
}

std::vector<std::string> records_of(const std::vector<Problem>& problems) {
  std::vector<std::string> records;
  for (const Problem& problem : problems) records.push_back(bad_line_record(problem));
  return records;
}

// One run. What it reads and opens are its members, in this order.
class BatchRun {
 public:
  BatchRun(const RunOptions& options, StatusBoard& status)
      : options_(options),
        status_(status),
        started_(start_of_run(options)),
        checkpoints_(checkpoint_folder(options).path, checkpoint_folder(options).whose),
        session_(open_session(options.job, answers_of(options, started_))),
        batch_(read_batch(options.input, session_.preparation.texts)) {
    session_.engine.checkpoints = checkpoints_.hooks();
    add_missing_templates(session_.preparation, batch_);
    options.skip_bad_lines ? skip_bad_lines(batch_) : refuse_problems(batch_);
    refuse_output_over_documents(options, batch_);
    if (!options.log.quiet) print_summary(session_);
    writer_ = open_writer(session_, options, started_);
    todo_ = writer_.plan(batch_.identities, options.retry_errors);
    unfinished_ = open_unfinished(options, batch_.identities, todo_);
    counts_.n_bad_lines = batch_.problems.size();
  }
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  // Returns the exit status.
  int run(JobRanks& ranks, SharedFolders& folders) {
    if (!options_.log.quiet) tell_what_is_there();
    if (todo_.requests.empty()) {
      start_writing();
      checkpoints_.run_is_complete();
      return report(options_, todo_, counts_, /*complete=*/true, writer_);
    }
    require_shared_folders(options_.answers, session_, ranks, folders);
    auto groups =
        group_by_documents(batch_.requests, todo_.requests, batch_.documents, batch_.folder);
    if (ranks.n_ranks > 1) sort_longest_first(groups);
    Progress progress(totals_of(groups));
    ProgressDisplay display(options_.log);
    for (const std::string& note : notes_on_unused_folders(options_.answers, batch_.requests))
      display.note(note);
    const bool complete = answer(groups, progress, display, ranks);
    display.finish(progress);
    writer_.verify();
    if (unfinished_) unfinished_->write();
    if (complete) checkpoints_.run_is_complete();
    if (const std::string text = checkpoints_.summary(); !text.empty()) display.note(text);
    return report(options_, todo_, counts_, complete, writer_);
  }

 private:
  void tell_what_is_there() const {
    if (todo_.n_done + todo_.n_failed > 0) {
      print_stderr("longhaul: continuing: {} of {} requests are done, {} failed earlier\n",
                   todo_.n_done, batch_.requests.size(), todo_.n_failed);
    }
    if (todo_.n_others > 0) {
      const char* const s = todo_.n_others == 1 ? "s" : "";
      print_stderr(
          "longhaul: {} line{} in {} and its errors file belong{} to no request of {} and stay{} "
          "there\n",
          todo_.n_others, *s == 0 ? "s" : "", options_.output.string(), s, batch_.source, s);
    }
  }

  ProgressTotals totals_of(const std::vector<RequestGroup>& groups) const {
    ProgressTotals totals{.group_bytes = {},
                          .n_requests = static_cast<std::int64_t>(todo_.requests.size())};
    for (const RequestGroup& group : groups) totals.group_bytes.push_back(group.n_bytes);
    return totals;
  }

  void start_writing() {
    writer_.start();
    writer_.set_bad_lines(records_of(batch_.problems));
    if (unfinished_) unfinished_->write();
  }

  // Whether nothing is left.
  bool answer(const std::vector<RequestGroup>& groups, Progress& progress, ProgressDisplay& display,
              JobRanks& ranks) {
    RunWork work = work_as_asked(options_, display);
    work.session = &session_;
    work.groups = &groups;
    work.requests = &batch_.requests;
    work.progress = &progress;
    work.status = &status_;
    work.on_start = [&] { start_writing(); };
    if (unfinished_ && !session_.heads.table.chooses_in_answers()) keep_unfinished(work.callbacks);
    // Lines and progress may go to one terminal.
    work.callbacks.on_done = [&](const PreparedRequest& prepared, const std::vector<Answer>& made) {
      display.clear();
      write_answers(prepared, made);
    };
    work.callbacks.on_failed = [&](const FailedRequest& failure) {
      display.clear();
      write_failure(failure);
    };
    try {
      return run_groups(work, ranks);
    } catch (...) {
      // What is unfinished belongs to the settings that the manifest names.
      if (!unfinished_ || unfinished_->size() == 0) writer_.remove_if_empty();
      throw;
    }
  }

  void keep_unfinished(EngineCallbacks& callbacks) {
    callbacks.picked_before = [&](std::size_t request) {
      return unfinished_->find(batch_.identities[request]);
    };
    callbacks.on_unfinished = [&](const std::vector<UnfinishedAnswer>& answers_so_far) {
      for (const UnfinishedAnswer& answer : answers_so_far)
        unfinished_->set(batch_.identities[answer.request], answer.tokens);
      unfinished_->write();
    };
  }

  void write_answers(const PreparedRequest& prepared, const std::vector<Answer>& made) {
    const std::string line = result_line({.identity = &batch_.identities[prepared.index],
                                          .prepared = &prepared,
                                          .answers = &made,
                                          .model = options_.answers.model,
                                          .system_fingerprint = session_.system_fingerprint,
                                          .created = unix_time()});
    const Stopwatch writing;
    writer_.add_result(line);
    status_.add_write(writing.seconds());
    if (unfinished_) unfinished_->forget(batch_.identities[prepared.index]);
    ++counts_.n_ok;
    const std::string& id = batch_.requests[prepared.index].custom_id;
    LONGHAUL_LOG(kInfo, kRun, "event=request_done id={} prompt_tokens={} answers={}", id,
                 prepared.n_prompt_tokens, made.size());
    log_event("request_done", {{"custom_id", id},
                               {"prompt_tokens", prepared.n_prompt_tokens},
                               {"new_tokens", made.front().n_generated()}});
  }

  void write_failure(const FailedRequest& failure) {
    const RequestIdentity& identity = batch_.identities[failure.index];
    writer_.add_error(error_line(identity, failure.code, failure.message));
    ++counts_.n_failed;
    if (failure.code == kOutOfMemoryCode) ++counts_.n_for_want_of_memory;
    if (unfinished_) unfinished_->forget(identity);
    const std::string& id = batch_.requests[failure.index].custom_id;
    status_.add_failure({id, failure.code, failure.message});
    LONGHAUL_LOG(kInfo, kRun, "event=request_failed id={} code={}", id, failure.code);
    log_event("request_failed", {{"custom_id", id}, {"code", failure.code}});
  }

  const RunOptions& options_;
  StatusBoard& status_;
  std::int64_t started_;  // by the clock; of a run that goes on, when it first was
  Checkpoints checkpoints_;
  RunSession session_;
  InputBatch batch_;
  ResultWriter writer_;
  Journal::ToDo todo_;
  std::optional<UnfinishedAnswers> unfinished_;
  Counts counts_;
};

}  // namespace

int run_batch(const RunOptions& options, JobRanks& ranks, SharedFolders& folders,
              StatusBoard& status) {
  refuse_bad_output(options);
  return BatchRun(options, status).run(ranks, folders);
}

}  // namespace longhaul
