#include "base/print_stderr.h"

#include <atomic>
#include <cstdio>

namespace longhaul {
namespace {

std::atomic<void (*)()> clear_progress = nullptr;

}  // namespace

void clear_before_stderr(void (*clear)()) { clear_progress = clear; }

void write_stderr(std::string_view text) {
  if (void (*const clear)() = clear_progress) clear();
  std::fwrite(text.data(), 1, text.size(), stderr);  // unbuffered
}

}  // namespace longhaul
