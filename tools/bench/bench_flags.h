// The flags of `longhaul bench`, named as llama-bench names them where it has them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/model_results.h"
#include "tools/cache_types.h"
#include "tools/cli_app.h"

namespace longhaul::bench {

struct BenchFlags {
  std::string model;
  std::string shape;
  std::optional<std::int64_t> n_layers;
  std::string weights = "auto";  // the files', or the shape's

  std::string n_prompt = "512";
  std::string n_gen = "128";
  std::vector<std::string> pairs;
  std::string n_depth = "0";
  int n_repetitions = 5;
  bool no_warmup = false;

  std::string device = "cpu";  // cpu, cuda or auto
  std::string threads = "0";
  std::int64_t chunk_len = 2048;
  CacheTypeFlags cache_types;
  std::int64_t block_size = 64;

  std::filesystem::path head_profile;
  std::optional<double> retrieval_ratio;
  std::optional<std::int64_t> sink;
  std::optional<std::int64_t> recent;

  std::string clock = "wall";
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
