// The flags that all evaluations have.
#pragma once
#include <memory>
#include <string>

#include "tools/eval/head_choice.h"
#include "tools/flags/cli_app.h"
#include "tools/job/head_settings.h"
#include "tools/job/job_config.h"
#include "tools/job/model_source.h"

namespace longhaul {

struct EvalFlags {
  std::string model;
  JobConfig job;
  std::string output_prefix;
  bool no_progress = false;
};

void add_eval_flags(CLI::App& app, EvalFlags& flags);

// The model's folder; and, for the ranks that only serve, its weights.
std::shared_ptr<const ModelFolder> open_folder(const EvalFlags& flags);
std::shared_ptr<ModelSource> open_source(const EvalFlags& flags);

struct HeadFlags {
  HeadSettings settings;
  HeadChoice choice;  // what the settings do not say
};

// The flags that change heads one by one.
void add_single_head_flags(CLI::App& app, HeadFlags& flags);

// Roles as both say. Reads the profile; throws what roles_by_profile and with_choice do.
HeadRoles read_head_roles(const HeadFlags& flags, const ModelFolder& folder);

}  // namespace longhaul
