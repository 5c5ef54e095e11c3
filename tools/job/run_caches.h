// Where a run saves documents' caches, and where it takes them from: --save-kv, --load-kv and
// checkpoints.
#pragma once
#include <string>
#include <vector>

#include "coordinator/requests.h"
#include "tools/job/run_session.h"

namespace longhaul {

// Tells the session's engine both. Of a session with its fingerprint. Makes the folder of
// --save-kv. Throws kUnsupported in builds without HDF5, kIo for folders that cannot be written and
// kCorruptData for one of --load-kv that cannot be read.
void set_up_caches(const JobConfig& job, const AnswerConfig& answers, RunSession& session);

// For people, where no request has documents: a line for each folder that was given for their
// caches. Pure.
std::vector<std::string> notes_on_unused_folders(const AnswerConfig& answers,
                                                 const std::vector<Request>& requests);

}  // namespace longhaul
