// What copy engines take of a GPU's memory (cluster/comm/copy_engines.h): communicators take it,
// planning counts with it.
#pragma once
#include <cstdint>

namespace longhaul {

// For what comes from another rank of the host: so many slots, of so many bytes.
inline constexpr std::int64_t kLandingSlots = 4;
inline constexpr std::int64_t kLandingSlotBytes = std::int64_t{4} << 20;

}  // namespace longhaul
