#include "tools/checksum_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <string>

#include "base/file.h"
#include "tools/flags/environment.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"
#include "tools/job/input_errors.h"
#include "tools/job/weight_check.h"

namespace longhaul {
namespace {

struct ChecksumFlags {
  std::string model;
  std::string output;
  bool check = false;
};

int run_checksum(const ChecksumFlags& flags) {
  const auto folder = open_model_folder(flags.model, hub_cache());
  if (flags.check) {
    verify_weights(folder->path(), flags.output);
    fmt::print("{}: all weights are as they should be\n", folder->path().string());
    return kExitDone;
  }
  const bool to_stdout = flags.output.empty() || flags.output == "-";
  if (!to_stdout) require_replaceable(flags.output);
  const std::string text = to_text(checksums_of(folder->path()));
  if (to_stdout) {
    fmt::print("{}", text);
  } else {
    replace_file(flags.output, text);
  }
  return kExitDone;
}

}  // namespace

Command add_checksum_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "checksum", "SHA-256 of a model's files, for run --verify-weights and sha256sum -c");
  const auto flags = std::make_shared<ChecksumFlags>();
  add_model_flag(*app, flags->model);
  app->add_option("-o,--output", flags->output,
                  "File to write to, or with --check to compare with; -: stdout (default)")
      ->type_name("FILE");
  app->add_flag("--check", flags->check,
                "Compare the files with --output, with longhaul.sha256 in the model's folder, or "
                "with what the hub said when they were downloaded");
  name_environment_variables(*app);
  app->footer(R"(Examples:
  Once, when the model was copied:
    longhaul checksum -m models/llama -o models/llama/longhaul.sha256
  Before every run, on every host:
    mpirun longhaul run -m models/llama --verify-weights -i requests.jsonl -o results.jsonl
)" + exit_status_help());
  return {app, [flags] { return run_checksum(*flags); }};
}

}  // namespace longhaul
