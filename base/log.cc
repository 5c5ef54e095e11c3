#include "base/log.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <mutex>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error",
                                                         "off"};
constexpr std::array<std::string_view, 5> kSubsystemNames = {"comm", "wire", "step", "snapshot",
                                                             "run"};

void write_to_stderr(std::string_view line) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

struct LogState {
  std::array<LogLevel, kSubsystemNames.size()> levels;
  std::string rank_label;
  void (*sink)(std::string_view) = write_to_stderr;
  std::mutex mutex;  // keeps lines of several threads whole
  LogState() { levels.fill(LogLevel::kWarning); }
};

LogState& state() {
  static LogState instance;
  return instance;
}

LogLevel level_named(std::string_view name, std::string_view whole) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("log level '{}' in '{}' is none of debug, info, warning, error, off",
                          name, whole));
}

std::size_t subsystem_named(std::string_view name, std::string_view whole) {
  for (std::size_t i = 0; i < kSubsystemNames.size(); ++i) {
    if (kSubsystemNames[i] == name) return i;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("log subsystem '{}' in '{}' is none of {}", name, whole,
                          fmt::join(kSubsystemNames, ", ")));
}

}  // namespace

void set_log_levels(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      state().levels.fill(level_named(part, text));
    } else {
      state().levels[subsystem_named(part.substr(0, equals), text)] =
          level_named(part.substr(equals + 1), text);
    }
  }
}

void set_log_rank(std::string label) { state().rank_label = std::move(label); }

void set_log_sink(void (*sink)(std::string_view line)) {
  state().sink = sink != nullptr ? sink : write_to_stderr;
}

bool log_enabled(LogLevel level, Subsystem subsystem) {
  return level >= state().levels[static_cast<std::size_t>(subsystem)];
}

void log_line(LogLevel level, Subsystem subsystem, std::string_view text) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  LogState& log = state();
  const std::string line =
      fmt::format("{:02}:{:02}:{:02}.{:03} {}{}{} {}: {}\n", local.tm_hour, local.tm_min,
                  local.tm_sec, millis, log.rank_label, log.rank_label.empty() ? "" : " ",
                  kLevelNames[static_cast<std::size_t>(level)],
                  kSubsystemNames[static_cast<std::size_t>(subsystem)], text);
  const std::lock_guard lock(log.mutex);
  log.sink(line);
}

}  // namespace longhaul
