// What people are told on stderr. Where stderr is full or closed, what cannot be said is left
// unsaid and nothing else changes; fmt::print(stderr, ...) would throw there, also in destructors
// and while a failure is reported. tools/dev/check_stderr.py keeps other ways out of the code.
#pragma once
#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace longhaul {

// In one call, so that lines of several ranks on one terminal stay whole. Never throws.
void write_stderr(std::string_view text);
// Called before it, by any thread: takes a line of progress from the terminal. Null: nothing.
void clear_before_stderr(void (*clear)());

template <typename... Args>
void print_stderr(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace longhaul
