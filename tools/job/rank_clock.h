// Which time it is on rank 0's clock: hosts' clocks differ, and jump. Logs of all ranks have that
// time.
#pragma once
#include <cstdint>

#include "cluster/comm/communicator.h"

namespace longhaul {

struct RankClock {
  std::int64_t offset_ns = 0;      // from this process' monotonic clock to rank 0's event clock
  std::int64_t round_trip_ns = 0;  // of the question it was found with: it is right to half of that
};
// Collective over comm. A few questions and answers between rank 0 and each other rank, one after
// the other.
RankClock find_rank_clock(Communicator& comm);

}  // namespace longhaul
