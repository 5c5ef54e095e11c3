// The flags that both evaluations have.
#pragma once
#include <filesystem>

#include "tools/cli_app.h"
#include "tools/eval/eval_model.h"
#include "tools/eval/head_choice.h"

namespace longhaul {

void add_eval_model_flags(CLI::App& app, EvalModelFlags& flags);

struct HeadFlags {
  std::filesystem::path head_profile;
  HeadChoice choice;  // without the profile, which is read after parsing
};

// --head-profile, --retrieval-ratio: as in `longhaul run`.
void add_profile_flags(CLI::App& app, HeadFlags& flags);
// --sink, --recent, and the flags that change heads one by one.
void add_single_head_flags(CLI::App& app, HeadFlags& flags);

// The choice with its profile read. Throws Error naming the file.
HeadChoice read_head_choice(const HeadFlags& flags);

}  // namespace longhaul
