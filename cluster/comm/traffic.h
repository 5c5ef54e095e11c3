// What a message is for: the label that keeps messages apart on their way and under which the bytes
// sent are counted. Tests and `explain` compare the counts with formulas.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace longhaul {

enum class Traffic : std::uint8_t {
  // Chosen by callers of start_send and start_receive.
  kKeys,     // K and V blocks that travel round the ring
  kQueries,  // queries and their softmax state that travel round the ring
  kOpen,     // open blocks, between their homes and who makes their tokens (KIVI)
  kHalo,     // the recent keys before a slab, for streaming heads
  kSink,     // the document's first blocks, for streaming heads
  kHidden,   // hidden states on their way to the next stage
  kOther,
  // Used by the collectives.
  kBarrier,
  kBroadcast,
  kAllReduce,
  kAllGather,
  kAgree,
  kSplit,
  // Used by GPU communicators.
  kHandshake,
};
inline constexpr int kTrafficKinds = 14;

// "keys", "all_reduce", ...
std::string_view name_of(Traffic traffic);

// Messages between the same two ranks match in the order in which they were started, separately for
// each tag. `stream` tells apart what travels side by side under one label (say, K and V).
inline constexpr int kStreams = 64;
struct Tag {
  Traffic traffic = Traffic::kOther;
  int stream = 0;  // [0, kStreams)
  bool operator==(const Tag&) const = default;
};

struct TrafficCount {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  bool operator==(const TrafficCount&) const = default;
};

// What one rank sent to others. What it sends to itself is not counted.
struct TrafficCounters {
  std::array<TrafficCount, kTrafficKinds> sent{};

  TrafficCount& operator[](Traffic traffic) { return sent[static_cast<std::size_t>(traffic)]; }
  const TrafficCount& operator[](Traffic traffic) const {
    return sent[static_cast<std::size_t>(traffic)];
  }

  TrafficCounters& operator+=(const TrafficCounters& other);
  // The traffic between two readings.
  TrafficCounters operator-(const TrafficCounters& earlier) const;
  bool operator==(const TrafficCounters&) const = default;
};

}  // namespace longhaul
