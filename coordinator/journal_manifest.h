// The manifest beside the results of a run, and whose it is: out, out.json and out.jsonl would
// share one, and with it the file of errors, what is unfinished and checkpoints. Whoever has a
// manifest has these, so one results file's name stands in it.
#pragma once
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "coordinator/journal.h"

namespace longhaul {

// Nullopt where there is none. Throws kCorruptData for one that cannot be read.
std::optional<Json> read_manifest(const std::filesystem::path& path);
// Whether it names these results; those of early releases name none.
bool names_results(const Json& manifest, const JournalPaths& paths);
void write_manifest(const JournalPaths& paths, const Json& manifest);  // with that name

// Throws kFailedPrecondition when the manifest names other results that are still there.
void require_own_manifest(const JournalPaths& paths);

}  // namespace longhaul
