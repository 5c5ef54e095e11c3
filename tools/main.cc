// The program `longhaul`: one subcommand per file, listed here; errors become messages and exit
// statuses in one place.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "build_info.h"
#include "cluster/comm/local_ranks.h"
#include "kernels/cpu/isa.h"
#include "tools/bench_command.h"
#include "tools/checksum_command.h"
#include "tools/doctor_command.h"
#include "tools/eval_command.h"
#include "tools/flags/commands.h"
#include "tools/flags/environment.h"
#include "tools/flags/help_text.h"
#include "tools/flags/other_tools.h"
#include "tools/flags/repeated_flags.h"
#include "tools/flags/suggestion.h"
#include "tools/identify_command.h"
#include "tools/job/exit_status.h"
#include "tools/job/job_end.h"
#include "tools/kv_command.h"
#include "tools/plan_command.h"
#include "tools/report_command.h"
#include "tools/run_command.h"
#include "tools/standard_streams.h"
#include "tools/supervise_command.h"
#include "tools/top_command.h"

namespace longhaul {
namespace {

std::string version_text() {
  using namespace build_info;
  const auto part = [](std::string_view name, bool has) {
    return fmt::format("{} {}", name, has ? "yes" : "no");
  };
  return fmt::format("longhaul {}\nbuilt with: {}, {}, {}, {}, {}\nCPU kernels: {}", kVersion,
                     part("MPI", kHasMpi), part("CUDA", kHasCuda), part("NCCL", kHasNccl),
                     part("HDF5", kHasHdf5), part("oneDNN", kHasOneDnn), name_of(active_isa()));
}

std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (!args.empty() && args.front() == "help") {  // help run: run --help
    args.erase(args.begin());
    args.emplace_back("--help");
  }
  spell_as_here(args);
  return {args.rbegin(), args.rend()};  // CLI11 takes them last one first
}

// Of the command that was named, or one below it.
bool takes_value(const CLI::App& command, const std::string& flag) {
  if (const CLI::Option* option = command.get_option_no_throw(flag))
    return option->get_items_expected_max() > 0;
  const auto below = command.get_subcommands();
  return std::any_of(below.begin(), below.end(),
                     [&](const CLI::App* one) { return takes_value(*one, flag); });
}

// CLI11 says "Could not convert: --temp = x" of what is no number or, of a flag, no truth value.
std::string usage_text(const CLI::App& program, const CLI::ParseError& error) {
  const std::string text = error.what();
  constexpr std::string_view kNoValue = "Could not convert: ";
  const std::size_t equals = text.find(" = ");
  if (!text.starts_with(kNoValue) || equals == std::string::npos) return text;
  const std::string flag = text.substr(kNoValue.size(), equals - kNoValue.size());
  return fmt::format("{}: '{}' is {}", flag, text.substr(equals + 3),
                     takes_value(program, flag) ? "not a number" : "neither true nor false");
}

// What is wrong with flags goes to stderr in our form, with what may have been meant.
int report_usage(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    std::ostringstream text;  // --help, --version
    program.exit(error, text);
    print_now(text.str());
    return kExitDone;
  }
  const std::string unknown = unknown_words(program);
  const std::string text =
      unknown.empty() ? with_variables_named(program, usage_text(program, error)) : unknown;
  print_stderr("longhaul: error: {}{}\n", text,
               text.ends_with('?') ? "" : "\nRun with --help for what there is.");
  return kExitUsage;
}

// What `run` does and throws; of a user's mistakes those that come from the environment say so.
int naming_variables(const CLI::App& program, const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(error.code(), with_variables_named(program, error.what()), error.where());
  }
}

int run_program(int argc, char** argv) {
  CLI::App program(
      "Longhaul answers questions about documents of up to millions of tokens with an LLM.",
      "longhaul");
  choose_isa();
  program.set_version_flag("-V,--version", version_text());
  program.require_subcommand(1);
  const std::vector<Command> commands = {
      add_run_command(program),  add_plan_command(program),   add_identify_command(program),
      add_eval_command(program), add_bench_command(program),  add_checksum_command(program),
      add_kv_command(program),   add_doctor_command(program), add_supervise_command(program),
      add_top_command(program),  add_report_command(program)};
  use_our_help(program);
  let_last_values_win(program);
  try {
    naming_variables(program, [&] {
      program.parse(arguments(argc, argv));
      return kExitDone;
    });
  } catch (const CLI::ParseError& error) {
    return report_usage(program, error);
  }
  if (rank_by_launcher().value_or(0) == 0) {
    for (const std::string& warning : warnings_about_variables(program))
      print_stderr("longhaul: warning: {}\n", warning);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return naming_variables(program, command.run);
  }
  return kExitInternal;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  using namespace longhaul;
  hold_standard_streams();
  explain_bus_errors(kExitEnvironment);
  try {
    return status_with_output(run_program(argc, argv));
  } catch (...) {
    return report_failure(std::current_exception());
  }
}
