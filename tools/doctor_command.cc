#include "tools/doctor_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "tools/doctor/doctor.h"
#include "tools/flags/environment.h"
#include "tools/flags/job_flags.h"
#include "tools/job/exit_status.h"
#include "tools/job/input_errors.h"
#include "tools/job/model_source.h"

namespace longhaul {
namespace {

struct DoctorFlags {
  DoctorConfig config;
  std::string model;
  bool json = false;
};

// The model's fingerprint, after its tokenizer has given a text back.
Json try_model(const std::string& model) {
  const auto folder = open_model_folder(model, hub_cache());
  const Tokenizer tokenizer = open_tokenizer(*folder);
  const std::string text = "Longhaul reads documents.";
  if (tokenizer.decode(tokenizer.encode(text)).find("reads documents.") == std::string::npos)
    throw Error(ErrorCode::kCorruptData,
                "its tokenizer does not give a text back that it has read");
  return source_of(folder, JobConfig{})->fingerprint();
}

}  // namespace

Command add_doctor_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "doctor", "Is this cluster fit for a job? Alone, under mpirun or under srun");
  const auto flags = std::make_shared<DoctorFlags>();
  app->add_option("-m,--model", flags->model,
                  "Also try whether this model opens, and is the same on all hosts")
      ->type_name("MODEL");
  app->add_option("--scratch", flags->config.scratch,
                  "Folder to write to: of results, checkpoints or saved caches")
      ->type_name("FOLDER")
      ->capture_default_str();
  add_network_flags(*app, flags->config.job, "");
  app->add_flag("--json", flags->json, "Print JSON");
  name_environment_variables(*app);
  app->footer(R"(Every line is PASS, WARN or FAIL, with why it matters and how to mend it.
Examples:
  longhaul doctor
  mpirun --hostfile hosts --map-by ppr:1:node \
    longhaul doctor -m models/llama --scratch /shared/run
)" + exit_status_help());
  return {app, [flags] {
            if (!flags->model.empty())
              flags->config.open_model = [flags] { return try_model(flags->model); };
            return run_doctor(flags->config, [&](const std::vector<Finding>& findings) {
              fmt::print("{}", flags->json ? to_text(to_json(findings)) + "\n" : to_text(findings));
            });
          }};
}

}  // namespace longhaul
