// Whether what `longhaul identify` computes fits in what ranks may fill, and what would make it
// fit. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "model/model_spec.h"
#include "partition/cluster_spec.h"
#include "tools/identify/finder_cost.h"

namespace longhaul {

// Of every rank, and of the one that may fill least.
struct TrainingRoom {
  std::int64_t weight_bytes = 0;
  std::int64_t usable_bytes = 0;
};

std::int64_t least_usable_bytes(const ClusterSpec& cluster);

// 0: it fits with texts of that shape.
std::int64_t missing_bytes(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape,
                           const TrainingRoom& room);

// What would make it fit, each alone: shorter texts, more ranks that may fill as much. Empty when
// it fits, or when nothing helps.
struct RoomChanges {
  std::int64_t n_tokens = 0;  // 0: no shorter text fits
  std::int64_t n_ranks = 0;   // 0: no number of ranks that is tried fits
};
RoomChanges changes_that_fit(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape,
                             const TrainingRoom& room);

// What the user says to get a shorter text: a flag, and tokens of the text for each that it is
// given.
struct LengthFlag {
  std::string name = {};
  std::int64_t tokens_of_one = 1;
};

// "17.88 GiB a rank with 14.96 GiB of weights; the smallest may fill 30.40 GiB: fits", or what is
// missing and, a line each, what would help.
std::string describe_room(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape,
                          const TrainingRoom& room, const LengthFlag& flag);

}  // namespace longhaul
