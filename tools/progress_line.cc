#include "tools/progress_line.h"

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

ProgressLine::~ProgressLine() { clear(); }

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
  clear();
  fmt::print(stderr, "{}\n", text);
  last_ = Clock::now();
}

void ProgressLine::clear() {
  if (has_line_) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  has_line_ = false;
}

}  // namespace longhaul
