#include "tools/progress_line.h"

#include <unistd.h>

#include "base/print_stderr.h"
#include "base/terminal.h"
#include "base/text_columns.h"

namespace longhaul {
namespace {

constexpr std::chrono::milliseconds kOnTerminal{200};
constexpr std::chrono::milliseconds kInFile{10'000};

}  // namespace

ProgressLine::ProgressLine(bool is_shown)
    : is_shown_(is_shown), is_terminal_(is_terminal(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::update(std::string_view text) {
  const Clock::time_point now = Clock::now();
  if (!last_) last_ = now;
  if (!is_shown_ || now - *last_ < (is_terminal_ ? kOnTerminal : kInFile)) return;
  last_ = now;
  if (is_terminal_) {
    // A line that the terminal cuts into two cannot be written over.
    const std::size_t width = terminal_columns(STDERR_FILENO).value_or(80);
    print_stderr("\r\033[K{}", first_columns(text, width - 1));
    has_line_ = true;
  } else {
    print_stderr("{}\n", text);
  }
}

void ProgressLine::print(std::string_view text) {
  if (!is_shown_) return;
  clear();
  print_stderr("{}\n", text);
  last_ = Clock::now();
}

void ProgressLine::clear() {
  if (has_line_) write_stderr("\r\033[K");
  has_line_ = false;
}

}  // namespace longhaul
