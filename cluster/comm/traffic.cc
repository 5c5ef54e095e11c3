#include "cluster/comm/traffic.h"

namespace longhaul {

std::string_view name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::kKeys:
      return "keys";
    case Traffic::kQueries:
      return "queries";
    case Traffic::kOpen:
      return "open blocks";
    case Traffic::kHalo:
      return "halo";
    case Traffic::kSink:
      return "sink";
    case Traffic::kHidden:
      return "hidden states";
    case Traffic::kOther:
      return "other data";
    case Traffic::kBarrier:
      return "barrier";
    case Traffic::kBroadcast:
      return "broadcast";
    case Traffic::kAllReduce:
      return "all_reduce";
    case Traffic::kAllGather:
      return "all_gather";
    case Traffic::kAgree:
      return "agree";
    case Traffic::kSplit:
      return "split";
    case Traffic::kHandshake:
      return "handshake";
  }
  return "unknown traffic";
}

TrafficCounters& TrafficCounters::operator+=(const TrafficCounters& other) {
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i].messages += other.sent[i].messages;
    sent[i].bytes += other.sent[i].bytes;
  }
  return *this;
}

TrafficCounters TrafficCounters::operator-(const TrafficCounters& earlier) const {
  TrafficCounters difference = *this;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    difference.sent[i].messages -= earlier.sent[i].messages;
    difference.sent[i].bytes -= earlier.sent[i].bytes;
  }
  return difference;
}

}  // namespace longhaul
