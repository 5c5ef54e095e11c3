#include "tools/bench/bench_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "base/error.h"
#include "build_info.h"
#include "kernels/isa.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/device_probes.h"
#include "tools/bench/kernels_command.h"
#include "tools/bench/machine.h"
#include "tools/bench/model_runner.h"
#include "tools/bench/number_ranges.h"
#include "tools/eval/progress_line.h"
#include "tools/exit_status.h"

namespace longhaul {
namespace {

using namespace bench;

void write(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

std::vector<int> thread_counts(const BenchFlags& flags) {
  std::vector<int> counts;
  for (const std::int64_t n : parse_ranges(flags.threads, "--threads")) {
    require(n <= 4096, fmt::format("--threads: {} are too many", n));
    set_kernel_threads(static_cast<int>(n));
    counts.push_back(kernel_threads());
    require(flags.clock == "wall" || counts.back() == 1,
            "--clock cpu counts one thread's time: use -t 1 with it");
  }
  return counts;
}

std::vector<Work> work_of(const BenchModel& model, const ModelTest& test, std::int64_t chunk_len) {
  const std::int64_t prompt_end = test.n_depth + test.n_prompt;
  std::vector<Work> steps = prefill_work(model.work_args(), {test.n_depth, prompt_end}, chunk_len);
  const auto decoding = decode_work(model.work_args(), {prompt_end, prompt_end + test.n_gen});
  steps.insert(steps.end(), decoding.begin(), decoding.end());
  return steps;
}

// Everything of one model with one number of threads.
class Session {
 public:
  Session(const BenchFlags& flags, const BenchModel& model, int n_threads, ProgressLine& progress)
      : flags_(flags),
        model_(model),
        facts_(model.facts()),
        progress_(progress),
        probes_((set_kernel_threads(n_threads), make_probes(model.device(), clock()))),
        runner_(model.worker_config(n_threads), flags.chunk_len, clock()) {
    facts_.cpu = cpu_name();
    facts_.isa = name_of(active_isa());
    facts_.n_threads = n_threads;
    facts_.clock = clock();
  }

  std::vector<Cell> run(const ModelTest& test) {
    const std::vector<Work> work = work_of(model_, test, flags_.chunk_len);
    const DType dtype = model_.work_args().weight_dtype;
    if (!flags_.no_warmup) warm_up(test);
    std::vector<ModelSample> samples;
    Rates before = probes_();
    Rates best = before;
    Bound bound;
    for (int i = 1; i <= flags_.n_repetitions; ++i) {
      progress_.update(fmt::format("{}: {} of {}", name_of(test), i, flags_.n_repetitions));
      const double seconds = runner_.run(test);
      const Rates after = probes_();
      bound = bound_of(work, better_of(before, after), dtype);
      samples.push_back({.seconds = seconds, .bound_seconds = bound.seconds});
      best = better_of(best, after);
      before = after;
    }
    return model_cells(facts_, test, samples, bound.limit, best);
  }

 private:
  BenchClock clock() const {
    return flags_.clock == "cpu" ? BenchClock::kThreadCpu : BenchClock::kWall;
  }
  // Fills the depth, maps weights, makes buffers.
  void warm_up(ModelTest test) {
    progress_.update(fmt::format("{}: warming up", name_of(test)));
    test.n_prompt = std::min(test.n_prompt, flags_.chunk_len);
    test.n_gen = std::min<std::int64_t>(test.n_gen, 1);
    runner_.run(test);
  }

  const BenchFlags& flags_;
  const BenchModel& model_;
  ModelFacts facts_;
  ProgressLine& progress_;
  std::function<Rates()> probes_;
  ModelRunner runner_;
};

int run_bench(const BenchFlags& flags) {
  check_bench_flags(flags);
  const std::vector<ModelTest> tests = tests_of(flags);
  const std::vector<int> threads = thread_counts(flags);
  ProgressLine progress(!flags.no_progress);
  progress.print(flags.model.empty()
                     ? fmt::format("longhaul bench: making random weights of {}", flags.shape)
                     : fmt::format("longhaul bench: reading {}", flags.model));
  const BenchModel model(flags);
  const TableFormat format = table_format_from(flags.output);
  const ModelFacts facts = model.facts();
  Table table(format, model_columns({.model_width = std::max<std::size_t>(20, facts.model.size()),
                                     .chunk_len = flags.chunk_len != BenchFlags{}.chunk_len,
                                     .cache_types = flags.cache_types.k != "auto" ||
                                                    flags.cache_types.v != "auto",
                                     .heads = facts.n_retrieval != facts.n_heads}));
  write(table.begin());
  for (const int n_threads : threads) {
    Session session(flags, model, n_threads, progress);
    for (const ModelTest& test : tests) write(table.row(session.run(test)));
  }
  write(table.end());
  if (format == TableFormat::kMarkdown) {
    write(fmt::format("\nlonghaul {} on {}, {}\n", build_info::kVersion, cpu_name(),
                      facts.gpu.empty() ? std::string(name_of(active_isa())) : facts.gpu));
  }
  return kExitDone;
}

}  // namespace

Command add_bench_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "bench", "Speed of prompts and generation, achieved against attainable");
  const auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(*app, *flags);
  const Command kernels = add_bench_kernels_command(*app);
  return {app,
          [flags, kernels] { return kernels.app->parsed() ? kernels.run() : run_bench(*flags); }};
}

}  // namespace longhaul
