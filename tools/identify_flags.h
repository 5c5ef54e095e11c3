// What `longhaul identify` can be told, as values.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/eval_flags.h"
#include "tools/eval/needle_runner.h"
#include "tools/identify/rank_tasks.h"

namespace longhaul {

enum class IdentifyMethod { kGates, kEcho, kInduction, kRazor, kNeedle, kRepetition };
// All of them, each with its word.
const std::vector<std::pair<std::string, IdentifyMethod>>& identify_methods();
std::string_view word_of(IdentifyMethod method);

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

}  // namespace longhaul
