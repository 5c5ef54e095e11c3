// One document's caches from the files of several runs, of which each may lack parts.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "worker/kv/sequence_cache.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// Fills an empty cache, of the first file's types, on the host. Every source has the first one's
// settings and its tokens or a beginning of them; of a shorter one come only heads that keep every
// token. Where several have a row, the first one's is taken. Gives the last hidden row, [d_model].
// `on_note` hears of parts that are left out, and why. Throws
// kFailedPrecondition naming what differs, kCorruptData naming the head and the positions, or the
// hidden row, that no source has.
std::vector<float> merge_saved(const std::vector<SavedHeader>& sources, SequenceCache& cache,
                               const std::function<void(const std::string&)>& on_note);

}  // namespace longhaul
