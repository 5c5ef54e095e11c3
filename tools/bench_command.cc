#include "tools/bench_command.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "build_info.h"
#include "kernels/cpu/isa.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/bench_session.h"
#include "tools/bench/machine.h"
#include "tools/bench/number_ranges.h"
#include "tools/flags/environment.h"
#include "tools/flags/given_flags.h"
#include "tools/job/exit_status.h"
#include "tools/job/job.h"
#include "tools/kernels_command.h"
#include "tools/kv_speed_command.h"
#include "tools/progress_line.h"
#include "tools/standard_streams.h"

namespace longhaul {
namespace {

using namespace bench;

// Of each rank; 0 stays what it is: ranks share their host's cores.
std::vector<int> thread_counts(const BenchFlags& flags, const JobRanks& ranks) {
  std::vector<int> counts;
  for (const std::int64_t n : parse_ranges(flags.threads, "--threads")) {
    require(n <= 4096, fmt::format("--threads: {} are too many", n));
    counts.push_back(static_cast<int>(n));
    if (flags.clock == WorkClock::kWall) continue;
    require(ranks.n_ranks == 1, "--clock cpu counts one rank's time: several ranks wait, too");
    set_kernel_threads(counts.back());
    require(kernel_threads() == 1, "--clock cpu counts one thread's time: use -t 1 with it");
  }
  return counts;
}

// Whether whole rows would be cut into two lines.
bool is_narrow_terminal() {
  constexpr int kRow = 130;
  winsize size{};
  return ::isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
         size.ws_col > 0 && size.ws_col < kRow;
}

Table table_of(const BenchFlags& flags, const ModelFacts& facts, const JobRanks& ranks,
               bool is_narrow) {
  return Table(table_format_from(flags.output),
               model_columns({.model_width = std::max<std::size_t>(20, facts.model.size()),
                              .ranks = ranks.n_ranks > 1,
                              .chunk_len = flags.job.chunk_len.has_value(),
                              .cache_types = flags.job.k_type || flags.job.v_type,
                              .heads = facts.n_retrieval != facts.n_heads,
                              .tokens_per_step = flags.n_quoted != "0",
                              .facts = !is_narrow}));
}

// On rank 0.
int run_bench(const BenchFlags& flags, JobRanks& ranks) {
  check_bench_flags(flags);
  const std::vector<ModelTest> tests = tests_of(flags);
  const std::vector<int> threads = thread_counts(flags, ranks);
  const BenchModel model(flags, hub_cache());
  const ModelFacts facts = model.facts();
  ProgressLine progress(!flags.no_progress);
  progress.print(flags.model.empty()
                     ? fmt::format("longhaul bench: making random weights of {}", flags.shape)
                     : fmt::format("longhaul bench: reading {}", flags.model));
  const bool is_narrow =
      table_format_from(flags.output) == TableFormat::kMarkdown && is_narrow_terminal();
  Table table = table_of(flags, facts, ranks, is_narrow);
  bool has_begun = false;
  for (const int n_threads : threads) {
    const JobWork work{.model = model.source().get(),
                       .heads = model.heads(),
                       .profile = {},
                       .workload = model.workload(tests, ranks.n_ranks),
                       .n_threads = n_threads};
    on_one_replica(ranks, flags.job, work, [&](const ReplicaRun& replica) {
      if (!has_begun && is_narrow) print_now(facts_line(facts) + "\n");
      if (!has_begun) print_now(table.begin());
      has_begun = true;
      BenchSession session({.model = model,
                            .replica = replica,
                            .n_repetitions = flags.n_repetitions,
                            .warms_up = !flags.no_warmup,
                            .clock = flags.clock,
                            .on_progress = [&](const std::string& t) { progress.update(t); }});
      for (const ModelTest& test : tests) {
        const std::string row = table.row(session.run(test));
        progress.clear();
        print_now(row);
      }
    });
  }
  print_now(table.end());
  if (table_format_from(flags.output) == TableFormat::kMarkdown) {
    print_now(fmt::format("\nlonghaul {} on {}, {}\n", build_info::kVersion, cpu_name(),
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
  const Command kv = add_bench_kv_command(*app);
  return {app, [app, flags, kernels, kv] {
            if (kernels.app->parsed()) return kernels.run();
            if (kv.app->parsed()) return kv.run();
            flags->job.flags_given = given_flags(*app);
            return run_job(
                flags->job,
                [&] {
                  check_bench_flags(*flags);
                  return BenchModel(*flags, hub_cache()).source();
                },
                [&](JobRanks& ranks) { return run_bench(*flags, ranks); });
          }};
}

}  // namespace longhaul
