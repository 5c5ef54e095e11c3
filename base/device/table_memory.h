// What the table of a head's blocks takes of a GPU's memory (kernels/block_table.h): caches take
// it, planning counts with it.
#pragma once
#include <cstdint>

namespace longhaul {

inline constexpr std::int64_t kTableEntryBytes = 8;      // for a block
inline constexpr std::int64_t kFewestTableEntries = 64;  // that a table has room for

}  // namespace longhaul
