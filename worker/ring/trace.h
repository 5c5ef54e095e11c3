// What a rank did when: spans of work, transfers and waits, written in the trace-event format that
// chrome://tracing and Perfetto show. Shows whether transfers hide behind compute.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace longhaul {

enum class TraceLane { kCompute, kTransfer, kWait };

// Used by one thread.
class Trace {
 public:
  struct Span {
    TraceLane lane;
    const char* name;  // a literal
    LayerId layer;
    std::int64_t hop;
    Clock::time_point begin;
    Clock::time_point end;
  };
  // Later spans are dropped: a trace is for looking at, a chunk or two is enough.
  static constexpr std::size_t kMostSpans = 200'000;

  void add(const Span& span) {
    if (spans_.size() < kMostSpans) spans_.push_back(span);
  }
  const std::vector<Span>& spans() const { return spans_; }
  // One process `rank` with a thread for each lane; times in microseconds of the machine's
  // monotonic clock, so that the files of ranks on one host fit together. Throws kIo.
  void write(const std::filesystem::path& path, Rank rank) const;

 private:
  std::vector<Span> spans_;
};

}  // namespace longhaul
