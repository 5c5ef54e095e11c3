// `longhaul run -p "..." -f document.txt`: one question, answered on stdout.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "build_info.h"
#include "coordinator/documents.h"
#include "tools/job/checkpoints.h"
#include "tools/job/exit_status.h"
#include "tools/job/run_caches.h"
#include "tools/job/run_groups.h"
#include "tools/job/run_session.h"
#include "tools/job/stop_signal.h"
#include "tools/job/time_limit.h"
#include "tools/progress_display.h"
#include "tools/run_modes.h"
#include "tools/run_work.h"
#include "tools/standard_streams.h"

namespace longhaul {
namespace {

// A file, or standard input for "-".
DocumentRef document_of(const std::filesystem::path& path) {
  if (path != "-") return {.path = path, .sha256 = {}};
  return {.path = {},
          .sha256 = {},
          .text = read_standard_input(TextLimits().max_bytes, stop_requested)};
}

// With a template, the question is a conversation; else it is text as it is. Says which.
void chat_if_possible(const RunOptions& options, const RunSession& session, Request& request) {
  const ChatSetup* chat = session.preparation.chat.get();
  if (options.no_chat || chat == nullptr) {
    require(options.system_prompt.empty(), "--sys needs a chat template, and no --no-chat");
    if (!options.no_chat && session.preparation.has_broken_template) {
      throw Error(ErrorCode::kCorruptData,
                  session.preparation.no_chat_reason + ", or --no-chat for the text as it is");
    }
    if (!options.log.quiet) {
      print_stderr("  the model reads the text as it is ({})\n",
                   options.no_chat ? "--no-chat" : session.preparation.no_chat_reason);
    }
    return;
  }
  JsonArray messages;
  if (!options.system_prompt.empty())
    messages.emplace_back(JsonObject{{"role", "system"}, {"content", options.system_prompt}});
  messages.emplace_back(
      JsonObject{{"role", "user"}, {"content", std::get<std::string>(request.prompts.front())}});
  request.prompts = {ChatPrompt{.variables = JsonObject{{"messages", std::move(messages)}}}};
  if (!options.log.quiet) print_stderr("  chat template: {}\n", chat->usual.source());
}

Request question_of(const RunOptions& options) {
  Request request;
  request.custom_id = "question";
  request.prompts = {options.prompt.value_or("")};
  for (const auto& path : options.documents) request.documents.push_back(document_of(path));
  request.seed = options.answers.sampling.seed.value_or(0);
  return request;
}

// The user said -f, and knows nothing of the request that it became.
std::string of_question(const Problem& problem) {
  return "-f: " + problem.message.substr(problem.message.find(": ") + 2);
}

// Without `progress` nothing but the answer's line break.
void print_answer_end(const PreparedRequest& prepared, const Answer& answer,
                      const Progress* progress) {
  if (!answer.text().ends_with('\n')) print_now("\n");
  if (progress == nullptr) return;
  print_stderr("longhaul: {} prompt tokens, {} new ones ({}); {}\n", prepared.n_prompt_tokens,
               answer.n_generated(), answer.finish_reason(), progress->summary());
}

int status_of_failure(const FailedRequest& failure) {
  if (failure.code == kOutOfMemoryCode) return kExitDoesNotFit;
  if (failure.code == "context_length_exceeded" || failure.code == "invalid_argument")
    return kExitUsage;
  if (failure.code == "document_changed" || failure.code == "document_unreadable" ||
      failure.code == "corrupt_data")
    return kExitBadInput;
  if (failure.code == "unsupported") return kExitEnvironment;
  if (failure.code == "input/output_error") return kExitEnvironment;  // standard output's, too
  return kExitInternal;
}

}  // namespace

int run_question(const RunOptions& options, JobRanks& ranks, SharedFolders& folders,
                 StatusBoard& status_board) {
  std::vector<Request> requests = {question_of(options)};
  Checkpoints checkpoints(options.answers.checkpoint_dir, Checkpoints::Folder::kShared);
  RunSession session = open_session(options.job, options.answers);
  session.engine.checkpoints = checkpoints.hooks();
  const CheckedDocuments documents = check_documents(requests, ".", session.preparation.texts);
  if (!documents.problems.empty())
    throw Error(ErrorCode::kCorruptData, of_question(documents.problems.front()));
  for (const Problem& warning : documents.warnings)
    print_stderr("longhaul: warning: {}\n", of_question(warning));
  if (!options.log.quiet) print_summary(session);
  chat_if_possible(options, session, requests.front());
  require_shared_folders(options.answers, session, ranks, folders);

  const auto groups = group_by_documents(requests, {0}, documents, ".");
  Progress progress({.group_bytes = {groups.front().n_bytes}, .n_requests = 1});
  ProgressDisplay display(options.log);
  for (const std::string& note : notes_on_unused_folders(options.answers, requests))
    display.note(note);
  int status = kExitDone;
  RunWork work = work_as_asked(options, display);
  work.session = &session;
  work.groups = &groups;
  work.requests = &requests;
  work.progress = &progress;
  work.status = &status_board;
  work.callbacks.on_text = [&](std::size_t, std::string_view text) {
    display.clear();
    display.stop();  // the answer takes the terminal over
    print_now(text);
  };
  work.callbacks.on_done = [&](const PreparedRequest& prepared,
                               const std::vector<Answer>& answers) {
    display.clear();
    print_answer_end(prepared, answers.front(), options.log.quiet ? nullptr : &progress);
  };
  work.callbacks.on_failed = [&](const FailedRequest& failure) {
    display.clear();
    print_stderr("longhaul: error: {}\n", failure.message);
    status_board.add_failure({requests.front().custom_id, failure.code, failure.message});
    status = status_of_failure(failure);
  };
  const bool complete = run_groups(work, ranks);
  if (!complete) {
    const bool may_save = build_info::kHasHdf5 && !options.documents.empty() &&
                          options.answers.checkpoint_every.unit != CheckpointEvery::Unit::kNever;
    print_stderr("\nlonghaul: stopped early{}; the answer is not complete{}\n",
                 if_time_is_over(options.end_time),
                 may_save && options.answers.checkpoint_dir.empty()
                     ? "; nothing was saved: --checkpoint-dir FOLDER keeps what was read"
                     : "");
    return kExitStopped;
  }
  checkpoints.run_is_complete();
  return status;
}

}  // namespace longhaul
