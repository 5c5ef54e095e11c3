// `longhaul run -p "..." -f document.txt`: one question, answered on stdout.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "coordinator/documents.h"
#include "tools/exit_status.h"
#include "tools/progress_display.h"
#include "tools/run_groups.h"
#include "tools/run_modes.h"
#include "tools/run_session.h"
#include "tools/stop_signal.h"

namespace longhaul {
namespace {

Request question_of(const RunOptions& options) {
  Request request;
  request.custom_id = "question";
  request.prompt = options.prompt.value_or("");
  for (const auto& path : options.documents) request.documents.push_back({path, {}});
  request.seed = options.sampling.seed.value_or(0);
  return request;
}

void print_answer_end(const PreparedRequest& prepared, const Answer& answer,
                      const Progress& progress) {
  if (!answer.text().ends_with('\n')) fmt::print("\n");
  std::fflush(stdout);
  fmt::print(stderr, "longhaul: {} prompt tokens, {} new ones ({}); {}\n", prepared.n_prompt_tokens,
             answer.n_generated(), answer.finish_reason(), progress.line());
}

int status_of_failure(const FailedRequest& failure) {
  if (failure.code == "out_of_memory") return kExitDoesNotFit;
  if (failure.code == "context_length_exceeded" || failure.code == "invalid_argument")
    return kExitUsage;
  return kExitInternal;
}

}  // namespace

int run_question(const RunOptions& options, const Launch& launch) {
  const std::vector<Request> requests = {question_of(options)};
  const CheckedDocuments documents = check_documents(requests, ".");
  if (!documents.problems.empty())
    throw Error(ErrorCode::kCorruptData, documents.problems.front().message);
  const RunSession session = open_session(options);
  print_summary(session);

  const auto groups = group_by_documents(requests, {0}, documents, ".");
  Progress progress({.group_bytes = {groups.front().n_bytes}, .n_requests = 1});
  ProgressDisplay display(!options.no_progress, options.log_file.empty());
  int status = kExitDone;
  EngineCallbacks callbacks;
  callbacks.on_text = [&](std::size_t, std::string_view text) {
    display.clear();
    display.stop();  // the answer takes the terminal over
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  callbacks.on_done = [&](const PreparedRequest& prepared, const Answer& answer) {
    display.clear();
    print_answer_end(prepared, answer, progress);
  };
  callbacks.on_failed = [&](const FailedRequest& failure) {
    display.clear();
    fmt::print(stderr, "longhaul: error: {}: {}\n", failure.code, failure.message);
    status = status_of_failure(failure);
  };
  callbacks.on_progress = [&](const Progress& now) { display.update(now); };
  callbacks.stop_requested = stop_requested;
  const bool complete = run_groups({.session = &session,
                                    .options = &options,
                                    .groups = &groups,
                                    .requests = &requests,
                                    .progress = &progress,
                                    .callbacks = std::move(callbacks)},
                                   launch);
  if (!complete) {
    fmt::print(stderr, "\nlonghaul: stopped early; the answer is not complete\n");
    return kExitStopped;
  }
  return status;
}

}  // namespace longhaul
