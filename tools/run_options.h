// The flags of `longhaul run`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/sampling.h"
#include "tools/cache_types.h"
#include "tools/cli_app.h"

namespace longhaul {

struct RunOptions {
  std::string model;
  std::filesystem::path input;                   // batch
  std::filesystem::path output;                  // batch
  std::optional<std::string> prompt;             // one question
  std::vector<std::filesystem::path> documents;  // one question

  std::optional<std::int64_t> ctx_size;
  SamplingFlags sampling;

  std::string device = "cpu";  // cpu, cuda or auto
  int n_threads = 0;
  std::optional<std::int64_t> chunk_len;  // default_chunk_len when not given
  std::int64_t parallel = 8;
  std::string weights = "auto";
  CacheTypeFlags cache_types;
  std::string kv_limit;
  std::int64_t block_size = 64;
  std::filesystem::path save_kv;  // a folder; empty: documents' caches are not saved

  std::filesystem::path head_profile;
  std::optional<double> retrieval_ratio;
  std::optional<std::int64_t> sink;
  std::optional<std::int64_t> recent;

  // Several ranks.
  std::optional<std::int64_t> n_ranks;  // threads of this process; under mpirun: not given
  std::filesystem::path cluster;        // TOML; empty: found out at start
  std::filesystem::path plan;           // JSON; empty: made at start
  std::optional<std::int64_t> n_stages;
  std::optional<std::int64_t> n_replicas;
  std::string history = "auto";
  std::string decode_balance = "total";
  double dead_after_seconds = 30;
  std::string control_address;
  std::filesystem::path report;
  std::filesystem::path trace;
  bool verbose = false;

  bool retry_errors = false;
  bool overwrite = false;
  bool parse_special = false;
  double step_timeout_seconds = 86400;
  bool no_progress = false;
  std::string log_level = "warning";
  std::filesystem::path log_file;
};

// Tokens of a prefill step when nothing is said: results do not depend on it, speed does.
std::int64_t default_chunk_len(std::int64_t n_ranks);

// Declares the flags; values are in `options` after parsing, which must outlive `app`.
void add_run_options(CLI::App& app, RunOptions& options);

// Throws kInvalidArgument for flags that do not go together, saying what to do.
void check_run_options(const RunOptions& options);

}  // namespace longhaul
