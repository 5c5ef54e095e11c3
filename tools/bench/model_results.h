// What `longhaul bench` found about a model, as rows in llama-bench's form. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/work_clock.h"
#include "tools/bench/bound.h"
#include "tools/bench/table.h"

namespace longhaul::bench {

// Prompt tokens, then generated ones, after n_depth tokens that are in the cache already.
struct ModelTest {
  std::int64_t n_prompt = 0;
  std::int64_t n_gen = 0;  // of each sequence
  std::int64_t n_depth = 0;
  std::int64_t n_sequences = 1;  // that generate at the same time; then there is no prompt
  // More than 0: what is generated is a passage of the n_depth tokens, and a step takes so many
  // guesses of it, at most.
  std::int64_t draft_max = 0;
  std::int64_t n_tokens() const { return n_prompt + n_gen; }
  bool operator==(const ModelTest&) const = default;
};
// llama-bench's names: "pp512", "tg128", "pp512+tg128", "pp512 @ d4096"; and "tg128 x8 @ d4096" of
// eight sequences, "quote200 @ d4096" of a passage with guesses.
std::string name_of(const ModelTest& test);

// One repetition.
struct ModelSample {
  double seconds = 0;
  double bound_seconds = 0;  // by rates measured right before or after it, the better
  std::int64_t n_steps = 0;  // that generated
};

// The same for all rows of a model and a number of threads.
struct ModelFacts {
  std::string cpu;
  std::string isa;
  std::string gpu = {};  // "cuda:0, NVIDIA ..."; empty: the CPU computes
  std::string model;  // as the user named it, and what of it runs: "llama-3.1-8b bf16, 4/32 layers"
  std::string model_type;
  std::string weight_type;
  std::int64_t size_bytes = 0;
  std::int64_t n_params = 0;
  std::int64_t n_layers = 0;
  std::int64_t n_layers_of_model = 0;
  std::int64_t n_ranks = 1;
  std::int64_t n_threads = 1;  // of each rank
  std::int64_t chunk_len = 0;
  std::string type_k;
  std::string type_v;
  std::int64_t n_heads = 0;  // KV heads of all layers
  std::int64_t n_retrieval = 0;
  std::int64_t sink = 0;
  std::int64_t recent = 0;
  WorkClock clock = WorkClock::kWall;
};

// Columns that say the same in every row and what is usual are left out of the Markdown.
struct ShownColumns {
  std::size_t model_width = 20;
  bool ranks = false;
  bool chunk_len = false;
  bool cache_types = false;
  bool heads = false;
  bool tokens_per_step = false;
  std::size_t test_width = 16;
};
// What is the same in every row is spare.
std::vector<Column> model_columns(const ShownColumns& shown);
// What the spare columns would show: "model bf16: 3.00 MiB, 1.57 M parameters, CPU avx2, 2 ranks".
std::string facts_line(const ModelFacts& facts, const ShownColumns& shown);
// `limit` is what bounds the test, `rates` what all ranks attained best meanwhile.
std::vector<Cell> model_cells(const ModelFacts& facts, const ModelTest& test,
                              const std::vector<ModelSample>& samples, Limit limit,
                              const Rates& rates);

}  // namespace longhaul::bench
