// What happened to this process' ranks, as lines of JSON that tools read: a file for each rank,
// DIR/rank-0007.jsonl, to which runs are appended. Times are of one clock, rank 0's. Events hold
// ids, figures and names of files; never text of documents, prompts or answers. Thread-safe.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul {

// From now on events are kept; before, they are dropped. Makes the folder; throws kIo. Call once,
// before threads start.
void open_event_log(const std::filesystem::path& folder);
bool keeps_events();
// Who this process is. Events are written from here on, with those from before.
void set_event_rank(std::int64_t rank, std::string host);
// What is to be added to this process' monotonic clock for rank 0's time since 1970. Without it:
// this host's own, as it was when the program started.
void set_event_clock(std::int64_t offset_ns);
// This process' time on that clock.
std::int64_t event_clock_ns();

// An event of this process' rank, or of another one that is a thread of it. A disk that takes no
// more ends the log, not the job.
constexpr std::int64_t kOwnRank = -1;
void log_event(std::string_view event, JsonObject members = {}, std::int64_t rank = kOwnRank);

// "2026-11-23T02:40:13.123456Z"
std::string utc_text(std::int64_t ns_since_1970);

}  // namespace longhaul
