// Which bytes of a file one read takes: several small chunks, or a large one, with what lies
// between them. Private to this folder; pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/direct_file.h"
#include "base/host_memory.h"
#include "base/ids.h"
#include "worker/snapshot/chunk_table.h"

namespace longhaul {

struct FileStretch {
  Extent bytes;                           // of the file
  std::vector<const SavedChunk*> chunks;  // that are in them whole, ascending
  std::vector<Extent> between;            // those of them that are in no chunk, ascending
};

// A read with its room fills a huge page; only a larger chunk makes a longer stretch.
inline constexpr std::int64_t kStretchBytes =
    static_cast<std::int64_t>(kHugePageBytes - DirectFile::room_for(0));

// The chunks of one file, each in one stretch, which ascend and do not overlap where chunks do not.
// With `n_bytes`, the file's size, the stretches hold all of the file; else little but the chunks.
std::vector<FileStretch> file_stretches(std::vector<const SavedChunk*> chunks,
                                        std::optional<std::int64_t> n_bytes);

}  // namespace longhaul
