#include "tools/kernels_command.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/terminal.h"
#include "build_info.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "kernels/probes/cpu_probes.h"
#include "tools/bench/kernel_results.h"
#include "tools/bench/machine.h"
#include "tools/bench/number_ranges.h"
#include "tools/flags/environment.h"
#include "tools/flags/number_flag.h"
#include "tools/job/exit_status.h"
#include "tools/job/job.h"
#include "tools/progress_line.h"
#include "tools/standard_streams.h"

namespace longhaul {
namespace {

using namespace bench;

struct KernelsFlags {
  std::string only;
  std::string max_length = "1M";
  std::string chunk_len = "2K";
  bool all_paths = false;
  bool list = false;
  int n_runs = 3;
  double budget_seconds = 30;
  int n_threads = 0;
  std::string clock = "auto";
  std::string output = "md";
  bool no_progress = false;
};

void add_flags(CLI::App& app, KernelsFlags& f) {
  app.add_option("--only", f.only, "Only kernels whose name contains this text");
  app.add_flag("--list", f.list, "Print the names and measure nothing");
  app.add_option("--max-length", f.max_length,
                 "Longest streaming heads, such as 256K; causal attention goes to this or 64K")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--chunk-len", f.chunk_len, "Tokens that streaming heads get at a time")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--all-paths", f.all_paths,
               "Products by every path that can compute them, not only the one that is taken");
  app.add_option("-r,--repetitions", f.n_runs, "Runs of each kernel; the fastest counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--budget", f.budget_seconds,
                 "Seconds after which a kernel is not run again; one whose single run would take "
                 "longer at best is left out and named")
      ->check(number_between(0.0, 1e6))
      ->capture_default_str();
  app.add_option("-t,--threads", f.n_threads, "Threads (default: OMP_NUM_THREADS, else all cores)")
      ->check(CLI::Range(0, 4096));
  app.add_option(
         "--clock", f.clock,
         "wall, or cpu: CPU time of the one thread, which a busy machine spoils less; auto: "
         "cpu with one thread")
      ->check(CLI::IsMember({"auto", "wall", "cpu"}))
      ->capture_default_str();
  app.add_option("-o,--output", f.output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  app.add_flag("--no-progress", f.no_progress, "Show no progress on stderr");
  name_environment_variables(app);
}

WorkClock clock_of(const std::string& name) {
  const bool is_alone = kernel_threads() == 1;
  require(name != "cpu" || is_alone, "--clock cpu counts one thread's time: use -t 1 with it");
  if (name == "auto") return is_alone ? WorkClock::kThreadCpu : WorkClock::kWall;
  return name == "cpu" ? WorkClock::kThreadCpu : WorkClock::kWall;
}

// Best of several runs, with probes right before and after them.
KernelTime measure(const KernelCase& c, const KernelsFlags& flags, const CpuProbes& probes,
                   WorkClock clock) {
  const std::function<void()> run = c.prepare();
  KernelTime time{
      .seconds = std::numeric_limits<double>::infinity(), .n_runs = 0, .rates = probes.measure()};
  double spent = 0;
  while (time.n_runs == 0 || (time.n_runs < flags.n_runs && spent < flags.budget_seconds)) {
    const double begin = now_seconds(clock);
    run();
    const double seconds = std::max(now_seconds(clock) - begin, 1e-9);
    time.seconds = std::min(time.seconds, seconds);
    spent += seconds;
    ++time.n_runs;
  }
  time.rates = better_of(time.rates, probes.measure());
  return time;
}

std::int64_t length_of(const std::string& flag, const std::string& text) {
  const auto lengths = parse_ranges(text, flag);
  require(lengths.size() == 1 && lengths[0] >= 1,
          fmt::format("{}: '{}' is no length; write 65536 or 64K", flag, text));
  return lengths[0];
}

std::vector<KernelCase> chosen_cases(const KernelsFlags& flags) {
  auto cases = kernel_cases({.only = flags.only,
                             .max_length = length_of("--max-length", flags.max_length),
                             .chunk_len = length_of("--chunk-len", flags.chunk_len),
                             .all_paths = flags.all_paths});
  require(!cases.empty(),
          fmt::format("--only: no kernel's name contains '{}'; --list shows them", flags.only));
  return cases;
}

std::size_t longest_name(const std::vector<KernelCase>& cases) {
  std::size_t width = 0;
  for (const KernelCase& c : cases) width = std::max(width, c.name.size());
  return width;
}

int run_kernels(const KernelsFlags& flags) {
  set_kernel_threads(flags.n_threads);
  const std::vector<KernelCase> cases = chosen_cases(flags);
  if (flags.list) {
    for (const KernelCase& c : cases) fmt::print("{}\n", c.name);
    return kExitDone;
  }
  const WorkClock clock = clock_of(flags.clock);
  const KernelSettings settings{.cpu = cpu_name(),
                                .isa = std::string(name_of(active_isa())),
                                .n_threads = kernel_threads(),
                                .clock = clock};
  ProgressLine progress(!flags.no_progress);
  const CpuProbes probes(clock);
  const Rates first_rates = probes.measure();
  const TableFormat format = table_format_from(flags.output);
  Table table(format, kernel_columns(longest_name(cases)), output_width());
  FamilySlopes slopes;
  print_now(table.begin());
  for (const KernelCase& c : cases) {
    const double at_best = bound_of(c.work, first_rates, c.dtype).seconds;
    if (at_best > flags.budget_seconds) {
      progress.print(fmt::format("{}: left out, {:.3g} s at best (--budget {})", c.name, at_best,
                                 flags.budget_seconds));
      continue;
    }
    progress.update(c.name);
    const KernelTime time = measure(c, flags, probes, clock);
    const std::string row = table.row(kernel_cells(c, time, slopes.add(c, time), settings));
    progress.clear();
    print_now(row);
  }
  print_now(table.end());
  if (table.leaves_out_spare_columns())
    print_now("\nachieved and attainable rates: a wider terminal, or -o csv\n");
  if (format == TableFormat::kMarkdown) {
    print_now(fmt::format("\n{}longhaul {} on {}, {}, {} thread{}, {} time\n", slopes.text(),
                          build_info::kVersion, settings.cpu, settings.isa, settings.n_threads,
                          settings.n_threads == 1 ? "" : "s", name_of(clock)));
  }
  return kExitDone;
}

}  // namespace

Command add_bench_kernels_command(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "kernels", "Matrix products and attention alone, achieved against attainable");
  const auto flags = std::make_shared<KernelsFlags>();
  add_flags(*app, *flags);
  app->footer(
      R"(Attainable is measured in the same process, right before and after each kernel, with the same
threads: multiply-adds from registers (of bf16 and int8 by AMX where the instruction set has it), and
reading of 512 MiB. A kernel is held against whichever of the two takes longer for its work. Weights
that fit the caches, or are fetched in another order, can exceed 1. slope: of log time over log
length, for the lengths so far.

Examples:
  longhaul bench kernels -t 1
  longhaul bench kernels -t 1 --only attention/streaming --max-length 1M --budget 120)");
  // Under mpirun one process measures.
  return {app, [flags] { return run_job({}, {}, [&](JobRanks&) { return run_kernels(*flags); }); }};
}

}  // namespace longhaul
