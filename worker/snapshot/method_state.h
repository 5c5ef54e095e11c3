// What methods that choose tokens by attention need to go on, from files to an empty cache that has
// its positions, and whether they are there. Private to this folder.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/head_loader.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// The positions of a head of which a method chose tokens; none of another head. Roles are
// read_saved_roles'.
std::optional<std::vector<std::int64_t>> chosen_positions(const SavedHeader& header,
                                                          const std::vector<SavedRole>& roles,
                                                          LayerId layer, KvHeadId kv_head);

// Queries and sums, and that the cache is cut where it is. Throws kCorruptData naming the head
// whose sums lack a position.
void load_method_state(HeadLoader& loader, const SavedHeader& header, SequenceCache& cache);

}  // namespace longhaul
