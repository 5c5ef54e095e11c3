#include "tools/eval/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace longhaul {
namespace {

constexpr std::chrono::milliseconds kOnTerminal{200};
constexpr std::chrono::milliseconds kInFile{10'000};

}  // namespace

ProgressLine::ProgressLine(bool is_shown)
    : is_shown_(is_shown), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (has_line_) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::update(std::string_view text) {
  const Clock::time_point now = Clock::now();
  if (!last_) last_ = now;
  if (!is_shown_ || now - *last_ < (is_terminal_ ? kOnTerminal : kInFile)) return;
  last_ = now;
  if (is_terminal_) {
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
    has_line_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void ProgressLine::print(std::string_view text) {
  if (!is_shown_) return;
  fmt::print(stderr, "{}{}\n", has_line_ ? "\r\033[K" : "", text);
  has_line_ = false;
  last_ = Clock::now();
}

}  // namespace longhaul
