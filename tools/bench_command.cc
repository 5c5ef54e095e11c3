#include "tools/bench_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/terminal.h"
#include "base/text_columns.h"
#include "build_info.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/bench_session.h"
#include "tools/bench/machine.h"
#include "tools/bench/number_ranges.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
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

ShownColumns shown_columns(const BenchFlags& flags, const ModelFacts& facts,
                           const std::vector<ModelTest>& tests, const JobRanks& ranks) {
  ShownColumns shown{.ranks = ranks.n_ranks > 1,
                     .chunk_len = flags.job.chunk_len.has_value(),
                     .cache_types = flags.job.k_type || flags.job.v_type,
                     .heads = facts.n_retrieval != facts.n_heads,
                     .tokens_per_step = flags.n_quoted != "0"};
  shown.model_width = std::max(shown.model_width, n_columns(facts.model));
  for (const ModelTest& test : tests)
    shown.test_width = std::max(shown.test_width, name_of(test).size());
  return shown;
}

// On rank 0.
int run_bench(const CLI::App& app, const BenchFlags& flags, JobRanks& ranks) {
  check_bench_flags(flags);
  refuse_without_effect(app, std::vector<FlagUse>{{"--draft-max", flags.n_quoted != "0",
                                                   "it needs --quote N, whose guesses it limits"}});
  const std::vector<ModelTest> tests = tests_of(flags);
  const std::vector<int> threads = thread_counts(flags, ranks);
  const BenchModel model(flags, hub_cache());
  const ModelFacts facts = model.facts();
  ProgressLine progress(!flags.no_progress);
  progress.print(flags.model.empty()
                     ? fmt::format("longhaul bench: making random weights of {}", flags.shape)
                     : fmt::format("longhaul bench: reading {}", flags.model));
  const TableFormat format = table_format_from(flags.output);
  const ShownColumns shown = shown_columns(flags, facts, tests, ranks);
  const std::size_t width = output_width();
  Table table(format, model_columns(shown), width);
  bool has_begun = false;
  for (const int n_threads : threads) {
    const JobWork work{.model = model.source().get(),
                       .heads = model.heads(),
                       .profile = {},
                       .workload = model.workload(tests, ranks.n_ranks),
                       .n_threads = n_threads};
    on_one_replica(ranks, flags.job, work, [&](const ReplicaRun& replica) {
      BenchSession session({.model = model,
                            .replica = replica,
                            .n_repetitions = flags.n_repetitions,
                            .warms_up = !flags.no_warmup,
                            .clock = flags.clock,
                            .on_progress = [&](const std::string& t) { progress.update(t); }});
      if (!has_begun && table.leaves_out_spare_columns())
        print_now(wrapped_text(facts_line(session.facts(), shown), {.width = width}) + "\n");
      if (!has_begun) print_now(table.begin());
      has_begun = true;
      for (const ModelTest& test : tests) {
        const std::string row = table.row(session.run(test));
        progress.clear();
        print_now(row);
      }
    });
  }
  print_now(table.end());
  if (format == TableFormat::kMarkdown) {
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
                [&](JobRanks& ranks) { return run_bench(*app, *flags, ranks); });
          }};
}

}  // namespace longhaul
