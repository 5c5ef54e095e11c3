// Log lines on stderr: time, level, subsystem, text. Levels are set once at start
// ("info,comm=debug"). Never stdout: that belongs to answers. Thread-safe; a line is written with
// one call.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace longhaul {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class Subsystem { kComm, kWire, kStep, kSnapshot, kRun };

// Reads "level" or "level,subsystem=level,..."; throws kInvalidArgument naming the bad part. Call
// before threads start.
void set_log_levels(std::string_view text);
// Put in front of every line, such as "node07:3". Call before threads start.
void set_log_rank(std::string label);
// Replaces stderr as the sink for whole lines (with the line break); used by the progress display
// and by tests.
void set_log_sink(void (*sink)(std::string_view line));
bool log_enabled(LogLevel level, Subsystem subsystem);
void log_line(LogLevel level, Subsystem subsystem, std::string_view text);

}  // namespace longhaul

#define LONGHAUL_LOG(level, subsystem, ...)                                                     \
  do {                                                                                          \
    if (::longhaul::log_enabled(::longhaul::LogLevel::level, ::longhaul::Subsystem::subsystem)) \
      ::longhaul::log_line(::longhaul::LogLevel::level, ::longhaul::Subsystem::subsystem,       \
                           fmt::format(__VA_ARGS__));                                           \
  } while (false)
