#include "base/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostPending = 1000;

std::int64_t since_1970(auto time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

struct Pending {
  std::int64_t mono_ns = 0;
  std::string event;
  JsonObject members;
  std::int64_t rank = kOwnRank;
};

struct EventLog {
  std::mutex mutex;
  std::filesystem::path folder;  // empty: events are dropped
  std::int64_t rank = kOwnRank;  // kOwnRank: not known yet
  std::string host;
  std::int64_t offset_ns = 0;
  std::vector<Pending> pending;
  std::map<std::int64_t, int> files;  // descriptors, by rank
  bool failed = false;

  int file_of(std::int64_t of_rank);
  void write(const Pending& event);
};

EventLog& events() {
  static EventLog instance;
  return instance;
}

int EventLog::file_of(std::int64_t of_rank) {
  const auto found = files.find(of_rank);
  if (found != files.end()) return found->second;
  const std::filesystem::path path = folder / fmt::format("rank-{:04}.jsonl", of_rank);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw_errno("--log-dir: cannot open", path.string());
  return files[of_rank] = file;
}

void EventLog::write(const Pending& event) {
  if (failed) return;
  const std::int64_t of_rank = event.rank == kOwnRank ? rank : event.rank;
  JsonObject line{{"ts", utc_text(event.mono_ns + offset_ns)},
                  {"mono_ns", event.mono_ns},
                  {"rank", of_rank},
                  {"host", host},
                  {"event", event.event}};
  line.insert(line.end(), event.members.begin(), event.members.end());
  const std::string text = to_text(Json(std::move(line))) + "\n";
  const auto written = ::write(file_of(of_rank), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  failed = true;
  LONGHAUL_LOG(kWarning, kRun, "event=log_dir_failed folder=\"{}\": no more events are written",
               folder.string());
}

}  // namespace

void open_event_log(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("--log-dir {}: files cannot be made in this folder", folder.string()));
  }
  const std::lock_guard lock(events().mutex);
  events().folder = folder;
  events().offset_ns = since_1970(std::chrono::system_clock::now()) - since_1970(Clock::now());
}

bool keeps_events() { return !events().folder.empty(); }

void set_event_rank(std::int64_t rank, std::string host) {
  if (!keeps_events()) return;
  const std::lock_guard lock(events().mutex);
  events().rank = rank;
  events().host = std::move(host);
  events().file_of(rank);
  for (const Pending& event : std::exchange(events().pending, {})) events().write(event);
}

void set_event_clock(std::int64_t offset_ns) {
  const std::lock_guard lock(events().mutex);
  events().offset_ns = offset_ns;
}

std::int64_t event_clock_ns() {
  const std::lock_guard lock(events().mutex);
  return since_1970(Clock::now()) + events().offset_ns;
}

void log_event(std::string_view event, JsonObject members, std::int64_t rank) {
  if (!keeps_events()) return;
  const std::lock_guard lock(events().mutex);
  Pending one{since_1970(Clock::now()), std::string(event), std::move(members), rank};
  if (events().rank != kOwnRank) {
    events().write(one);
  } else if (events().pending.size() < kMostPending) {
    events().pending.push_back(std::move(one));
  }
}

std::string utc_text(std::int64_t ns_since_1970) {
  const std::time_t seconds = ns_since_1970 / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     ns_since_1970 % 1'000'000'000 / 1000);
}

}  // namespace longhaul
