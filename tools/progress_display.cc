#include "tools/progress_display.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "base/log.h"
#include "base/print_stderr.h"
#include "base/terminal.h"
#include "base/text_columns.h"

namespace longhaul {
namespace {

constexpr auto kTerminalPeriod = std::chrono::milliseconds(250);
constexpr auto kFilePeriod = std::chrono::seconds(10);

// Whether the terminal's current line is ours, to be cleared before others write. Log lines may
// come from any thread.
std::atomic<bool> line_is_shown{false};

void write_all(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

void clear_line() {
  if (line_is_shown.exchange(false)) write_all("\r\033[K");
}

void log_beside_progress(std::string_view line) {
  clear_line();
  write_all(line);
}

std::size_t terminal_width() { return terminal_columns(STDERR_FILENO).value_or(80); }

}  // namespace

ProgressDisplay::ProgressDisplay(const LogFlags& flags)
    : enabled_(!flags.no_progress && !flags.quiet),
      tells_(!flags.quiet),
      is_terminal_(is_terminal(STDERR_FILENO)),
      next_(Clock::now()) {
  if (!is_terminal_) next_ += kFilePeriod;
  if (enabled_ && is_terminal_) clear_before_stderr(clear_line);
  if (enabled_ && is_terminal_ && flags.file.empty()) set_log_sink(log_beside_progress);
}

ProgressDisplay::~ProgressDisplay() { clear(); }

void ProgressDisplay::update(const Progress& progress) {
  if (!enabled_ || Clock::now() < next_) return;
  if (is_terminal_) {
    show_on_terminal(progress.line(terminal_width() - 1));
    next_ = Clock::now() + kTerminalPeriod;
  } else {
    write_all(progress.line() + "\n");
    next_ = Clock::now() + kFilePeriod;
  }
}

void ProgressDisplay::finish(const Progress& progress) {
  clear();
  if (enabled_) write_all(progress.summary() + "\n");
}

void ProgressDisplay::clear() { clear_line(); }

void ProgressDisplay::tell(std::string_view lines) {
  clear();
  if (tells_) write_all(lines);
}

void ProgressDisplay::note(std::string_view text) { tell(fmt::format("longhaul: {}\n", text)); }

void ProgressDisplay::warn(std::string_view text) {
  clear();
  write_all(fmt::format("longhaul: warning: {}\n", text));
}

void ProgressDisplay::show_on_terminal(std::string_view line) {
  line_is_shown = true;
  write_all(fmt::format("\r\033[K{}", first_columns(line, terminal_width() - 1)));
}

}  // namespace longhaul
