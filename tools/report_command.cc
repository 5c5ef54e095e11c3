#include "tools/report_command.h"

#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/print_stderr.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
#include "tools/job/exit_status.h"
#include "tools/status/http_server.h"
#include "tools/status/status_service.h"
#include "tools/support_report.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  fs::path output;
  fs::path log_dir;
  fs::path results;
  std::string status;
  fs::path token_file;
};

// A folder beside the archive; removed at the end.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& beside) : path_(beside.string() + ".XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw_errno("cannot make", path_);
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  fs::path path() const { return path_; }

 private:
  std::string path_;
};

void make_archive(const fs::path& archive, const fs::path& parent, const std::string& folder) {
  std::vector<std::string> words = {"tar", "-czf", archive.string(), "-C", parent.string(), folder};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  int status = -1;
  const int failed = ::posix_spawnp(&child, "tar", nullptr, nullptr, arguments.data(), environ);
  if (failed != 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("tar could not write {}; with -o FOLDER, a name without "
                            ".tar.gz, it is not needed",
                            archive.string()));
  }
}

std::string status_of(const ReportFlags& flags) {
  if (flags.status.empty()) return "";
  const std::string token = flags.token_file.empty() ? "" : token_from(flags.token_file);
  const HttpAnswer answer =
      http_get(http_address(flags.status), "/status.json", token, std::chrono::seconds(10));
  if (answer.status != 200) {
    throw Error(ErrorCode::kIo,
                fmt::format("--status {}: its server says {}", flags.status, answer.status));
  }
  return answer.body;
}

int write_report(const CLI::App& app, const ReportFlags& flags) {
  refuse_without_effect(app, std::vector<FlagUse>{{"--status-token-file", !flags.status.empty(),
                                                   "it needs --status PORT, whose token it is"}});
  const bool is_archive = is_report_archive(flags.output);
  const SupportSources sources{
      .log_dir = flags.log_dir, .results = flags.results, .status = status_of(flags)};
  if (!is_archive) {
    write_support_report(flags.output, sources);
  } else {
    require(!fs::exists(flags.output),
            fmt::format("{} is there already: give -o another name", flags.output.string()));
    const WorkFolder work(flags.output);
    const std::string name = "longhaul-report";
    write_support_report(work.path() / name, sources);
    make_archive(flags.output, work.path(), name);
  }
  print_stderr(
      "longhaul: report in {}{}: versions, this host{}{}{}; no text of documents, "
      "prompts or answers\n",
      is_archive ? "" : "the folder ", flags.output.string(),
      flags.log_dir.empty() ? "" : ", logs and plan",
      flags.results.empty() ? "" : ", the results' manifest",
      flags.status.empty() ? "" : ", status");
  return kExitDone;
}

}  // namespace

Command add_report_command(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("report", "Gather what a question to support needs into one file");
  const auto flags = std::make_shared<ReportFlags>();
  app->add_option("-o,--output", flags->output, "NAME.tar.gz, or a folder")
      ->type_name("FILE")
      ->required();
  app->add_option("--log-dir", flags->log_dir, "Folder that runs wrote their events to")
      ->type_name("FOLDER");
  app->add_option("--results", flags->results,
                  "Results file of the run (-o): only its manifest goes into the report, not the "
                  "results")
      ->type_name("FILE");
  app->add_option("--status", flags->status, "[ADDRESS:]PORT of a job that runs")
      ->type_name("ADDRESS");
  app->add_option("--status-token-file", flags->token_file,
                  "File whose first line is the token of the job's status")
      ->type_name("FILE");
  name_environment_variables(*app);
  app->footer(R"(Names of files and custom_ids are in it; text of documents, prompts and answers
is not.
Example:
  longhaul report -o report.tar.gz --log-dir logs --results results.jsonl

)" + exit_status_help());
  return {app, [app, flags] { return write_report(*app, *flags); }};
}

}  // namespace longhaul
