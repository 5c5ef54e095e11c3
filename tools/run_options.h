// The flags of `longhaul run`.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/flags/cli_app.h"
#include "tools/flags/log_flags.h"
#include "tools/job/job_config.h"
#include "tools/job/run_report.h"
#include "tools/job/run_session.h"
#include "tools/status/status_service.h"

namespace longhaul {

struct RunOptions {
  std::filesystem::path input;                   // batch; "-": standard input
  std::filesystem::path output;                  // batch; "-": standard output
  bool skip_bad_lines = false;                   // batch: run what is left without them
  bool retry_errors = false;                     // batch: failed requests of an earlier run again
  bool overwrite = false;                        // batch: start over
  bool accept_edited = false;                    // batch: results that were edited by hand stay
  std::optional<std::string> prompt;             // one question
  std::vector<std::filesystem::path> documents;  // one question; "-": standard input
  bool no_chat = false;                          // one question: raw text, without the template
  std::string system_prompt;                     // one question

  AnswerConfig answers;
  JobConfig job;
  std::filesystem::path report;          // JSON; empty: none
  bool kv_report = false;                // caches by method, measured and predicted, at the end
  std::filesystem::path save_cluster;    // TOML; empty: none
  std::optional<std::int64_t> end_time;  // seconds since 1970, by which the job must be over
  bool verbose = false;                  // the whole plan is printed
  StatusConfig status = {};
  LogFlags log;
};

// Declares the flags; values are in `options` after parsing, which must outlive `app`.
void add_run_options(CLI::App& app, RunOptions& options);

// Where --kv-report asks for it: see RunWork.
std::optional<MethodNames> kv_methods(const RunOptions& options);

// Throws kInvalidArgument for flags that do not go together, saying what to do.
void check_run_options(const CLI::App& app, const RunOptions& options);

}  // namespace longhaul
