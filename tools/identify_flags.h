// What `longhaul identify` can be told, as values.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "tools/eval/eval_flags.h"
#include "tools/eval/needle_runner.h"
#include "tools/identify/finder_cost.h"
#include "tools/identify/rank_tasks.h"

namespace longhaul {

struct IdentifyFlags {
  EvalFlags eval;
  IdentifyConfig config;
  std::filesystem::path folder;
  IdentifyMethod method = IdentifyMethod::kGates;
  bool compares = false;
  bool estimates = false;
  bool overwrites = false;
  std::int64_t checkpoint_every = 50;
  std::optional<double> target;
  NeedleTexts needle;  // of the questions that --target asks
};

// `flags` must outlive `app`.
void add_identify_flags(CLI::App& app, IdentifyFlags& flags);
// Templates that were not given become those of the records' form. Call after parsing.
void fill_in_templates(PasskeyConfig& texts, const CLI::App& app);
// Throws kInvalidArgument for flags of the command line that would have no effect. Call it where
// the job leads.
void check_identify_flags(const CLI::App& app, const IdentifyFlags& flags);
// How a job of this command is laid out is not for flags of other commands to say, which the
// environment may hold. Call before the job starts.
void leave_out_layouts(JobConfig& job);

}  // namespace longhaul
