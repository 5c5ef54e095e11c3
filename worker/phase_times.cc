#include "worker/phase_times.h"

namespace longhaul {

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kEmbed:
      return "embed";
    case Phase::kProject:
      return "project";
    case Phase::kAppend:
      return "append";
    case Phase::kAttend:
      return "attend";
    case Phase::kFinish:
      return "finish";
    case Phase::kFeedForward:
      return "feed forward";
    case Phase::kTrim:
      return "trim";
    case Phase::kLogits:
      return "logits";
    case Phase::kPick:
      return "pick";
    case Phase::kRingWait:
      return "ring wait";
    case Phase::kWhole:
      return "whole steps";
  }
  return "unknown";
}

}  // namespace longhaul
