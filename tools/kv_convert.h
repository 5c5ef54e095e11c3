// Saved caches as other saved caches: of other types, in one part in place of many, or from what
// several runs have of a document.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/kv_type.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

struct KvConversion {
  std::optional<KvType> k_type;  // none: as they are
  std::optional<KvType> v_type;
  // Tokens of a block in memory, on which rows in files depend where groups are quantised only.
  std::optional<std::int64_t> block_size;
};

// Writes the document's caches to `folder`, in one part and under the name of what is in them, as a
// run with these cache types would; does nothing where they are there. All of them are in memory
// meanwhile. The new master. Throws as restoring and saving do, kFailedPrecondition for files that
// do not say what they were made with, kInvalidArgument where they are there in other blocks.
std::filesystem::path convert_saved(const SavedHeader& header, const std::filesystem::path& folder,
                                    const KvConversion& conversion);

// Writes one document's caches, of which several files have parts, to `folder`, in one part: what
// merge_saved (worker/snapshot/merge_saved.h) makes of them, the longest first. The same otherwise.
// `on_note` hears of parts that are left out because they are damaged.
std::filesystem::path merge_saved_files(std::vector<SavedHeader> headers,
                                        const std::filesystem::path& folder,
                                        const std::function<void(const std::string&)>& on_note);

}  // namespace longhaul
