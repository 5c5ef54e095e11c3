// The flags of `longhaul bench`, named as llama-bench names them where it has them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/work_clock.h"
#include "tools/bench/model_results.h"
#include "tools/flags/cli_app.h"
#include "tools/job/head_settings.h"
#include "tools/job/job_config.h"

namespace longhaul::bench {

struct BenchFlags {
  std::string model;
  std::string shape;
  std::optional<std::int64_t> n_layers;

  std::string n_prompt = "512";
  std::string n_gen = "128";
  std::vector<std::string> pairs;
  std::string n_depth = "0";
  std::string n_sequences = "1";  // of each generation
  std::string n_quoted = "0";
  std::int64_t draft_max = 16;
  int n_repetitions = 5;
  bool no_warmup = false;

  JobConfig job;              // all but its n_threads
  std::string threads = "0";  // of each rank: numbers, one after the other
  HeadSettings heads;         // a ratio without a profile: heads scattered at random

  WorkClock clock = WorkClock::kWall;  // or kProcessCpu
  std::string output = "md";
  bool no_progress = false;
};

// Declares them; `flags` must outlive `app`.
void add_bench_flags(CLI::App& app, BenchFlags& flags);

// Throws kInvalidArgument for flags that do not go together.
void check_bench_flags(const BenchFlags& flags);

// In llama-bench's order: depth by depth all prompts, then all generations, then all pairs; lengths
// of 0 are left out. Throws kInvalidArgument when nothing is left.
std::vector<ModelTest> tests_of(const BenchFlags& flags);

}  // namespace longhaul::bench
