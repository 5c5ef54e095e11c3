#include "tools/top_command.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/terminal.h"
#include "tools/flags/environment.h"
#include "tools/flags/flag_use.h"
#include "tools/flags/number_flag.h"
#include "tools/job/exit_status.h"
#include "tools/standard_streams.h"
#include "tools/status/http_server.h"
#include "tools/status/status_forms.h"
#include "tools/status/status_service.h"

namespace longhaul {
namespace {

struct TopFlags {
  std::string address;
  std::filesystem::path token_file;
  double every_seconds = 1;
  bool once = false;
};

constexpr auto kAnswerLimit = std::chrono::seconds(10);

winsize terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return {.ws_row = 0, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  return size;
}

std::string ask(const TopFlags& flags, const std::string& token, std::size_t columns) {
  const HttpAnswer answer =
      http_get(http_address(flags.address), fmt::format("/status.txt?columns={}", columns), token,
               kAnswerLimit);
  if (answer.status == 200) return answer.body;
  const std::string why = without_controls(answer.body.substr(0, answer.body.find('\n')));
  throw Error(
      answer.status == 401 || answer.status == 403 ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
      fmt::format("{} says {}: {}{}", flags.address, answer.status, why,
                  answer.status == 401 ? " Give --status-token-file FILE" : ""));
}

// From the top of the screen, what was there before cleared, no more lines than it has.
void draw(const std::string& text, std::size_t n_rows) {
  std::string out = "\033[H";
  std::size_t begin = 0;
  for (std::size_t row = 0; begin < text.size() && (n_rows == 0 || row + 1 < n_rows); ++row) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += without_controls(std::string_view(text).substr(begin, end - begin)) + "\033[K\n";
    begin = end + 1;
  }
  out += "\033[J";
  print_now(out);
}

int show(const CLI::App& app, const TopFlags& flags) {
  refuse_without_effect(
      app, std::vector<FlagUse>{{"--every", !flags.once, "--once looks a single time"}});
  const std::string token = flags.token_file.empty() ? "" : token_from(flags.token_file);
  if (flags.once || !is_terminal(STDOUT_FILENO)) {
    fmt::print("{}", ask(flags, token, terminal().ws_col));
    return kExitDone;
  }
  for (bool was_there = false;; was_there = true) {
    try {
      const winsize size = terminal();
      draw(ask(flags, token, size.ws_col), size.ws_row);
    } catch (const Error& error) {
      if (!was_there || error.code() != ErrorCode::kIo) throw;
      fmt::print("\nThe job has ended, or does not answer any more.\n");
      return kExitDone;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.every_seconds));
  }
}

}  // namespace

Command add_top_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("top", "Show in a terminal how far a job is");
  const auto flags = std::make_shared<TopFlags>();
  app->add_option("address", flags->address,
                  "[ADDRESS:]PORT that the job was started with (run --status)")
      ->required();
  app->add_option("--every", flags->every_seconds, "Seconds between two looks")
      ->check(number_between(0.1, 3600.0))
      ->capture_default_str();
  app->add_flag("--once", flags->once, "Print once and leave, as when there is no terminal");
  app->add_option("--status-token-file", flags->token_file,
                  "File whose first line is the token of the job's status")
      ->type_name("FILE");
  name_environment_variables(*app);
  app->footer(R"(Examples:
  longhaul run ... --status 9000 &
  longhaul top 9000

)" + exit_status_help());
  return {app, [app, flags] { return show(*app, *flags); }};
}

}  // namespace longhaul
