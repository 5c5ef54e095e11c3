// Where a run saves documents' caches, and where it takes them from: --save-kv, --load-kv and
// checkpoints.
#pragma once
#include "tools/job/run_session.h"

namespace longhaul {

// Tells the session's engine both. Of a session with its fingerprint. Makes the folder of
// --save-kv. Throws kUnsupported in builds without HDF5 and kIo for folders that cannot be used.
void set_up_caches(const JobConfig& job, const AnswerConfig& answers, RunSession& session);

}  // namespace longhaul
