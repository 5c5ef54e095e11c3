#include "tools/eval/eval_flags.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "tools/flags/environment.h"
#include "tools/flags/job_flags.h"
#include "tools/job/input_errors.h"

namespace longhaul {

void add_eval_flags(CLI::App& app, EvalFlags& f) {
  f.job.n_replicas = 1;  // an evaluation drives one
  f.job.after_loss = "nothing is written; run the same command again";
  add_model_flag(app, f.model);
  app.add_flag("--no-progress", f.no_progress, "Show no progress on stderr");
  const std::string group = "Speed and memory";
  add_device_flags(app, f.job, group);
  add_chunk_flag(app, f.job, group);
  add_reproducible_flag(app, f.job, group);
  add_weights_flag(app, f.job, group);
  add_verify_flags(app, f.job, group);
  add_cache_flags(app, f.job, group);
  add_kv_limit_flag(app, f.job, group);
  add_step_timeout_flag(app, f.job, group);
  add_rank_flags(app, f.job);
}

std::shared_ptr<const ModelFolder> open_folder(const EvalFlags& flags) {
  return open_model_folder(flags.model, hub_cache());
}

std::shared_ptr<ModelSource> open_source(const EvalFlags& flags) {
  return source_of(open_folder(flags), flags.job);
}

void add_single_head_flags(CLI::App& app, HeadFlags& f) {
  const std::string group = kHeadGroup;
  app.add_flag("--all-dense", f.choice.all_dense,
               "Every head keeps every token, whatever the profile says")
      ->group(group);
  app.add_flag("--all-streaming", f.choice.all_streaming, "No head keeps every token")
      ->group(group);
  app.add_option("--streaming-head", f.choice.streaming_heads,
                 "LAYER:KV_HEAD that becomes a streaming head; may be given again")
      ->type_name("HEAD")
      ->group(group);
  app.add_option("--only-retrieval-head", f.choice.only_retrieval_head,
                 "LAYER:KV_HEAD that alone keeps every token")
      ->type_name("HEAD")
      ->group(group);
}

HeadRoles read_head_roles(const HeadFlags& flags, const ModelFolder& folder) {
  require(
      !flags.settings.retrieval_ratio || !(flags.choice.all_dense || flags.choice.all_streaming),
      "--retrieval-ratio chooses heads by the profile: give it without --all-dense and "
      "--all-streaming");
  return with_choice(roles_by_profile(flags.settings, folder.config().spec, &folder).roles,
                     flags.choice);
}

}  // namespace longhaul
