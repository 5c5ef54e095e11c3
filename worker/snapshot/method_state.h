// What methods that choose tokens by attention need to go on, from files to an empty cache that has
// its positions, and whether they are there. Private to this folder.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/head_loader.h"
#include "worker/snapshot/head_to_fill.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// Of a head whose tokens were merged: how many slots it has; none of another head. Roles are
// read_saved_roles'.
std::optional<std::int64_t> n_saved_slots(const SavedHeader& header,
                                          const std::vector<SavedRole>& roles, LayerId layer,
                                          KvHeadId kv_head);
// Of a head of which a method chose tokens; none of another head. Roles are read_saved_roles'.
std::optional<ChosenTokens> chosen_tokens(const SavedHeader& header,
                                          const std::vector<SavedRole>& roles, LayerId layer,
                                          KvHeadId kv_head);

// Whether this rank stores block `block` of a head.
using IsHome = std::function<bool(LayerId, KvHeadId, std::int64_t block)>;

// Queries, sums and tokens that others may merge with, and that the cache is cut where it is.
// Throws kCorruptData naming the head whose sums lack a position, or are not there.
void load_method_state(HeadLoader& loader, const SavedHeader& header, const IsHome& is_home,
                       SequenceCache& cache);

}  // namespace longhaul
