// What a run's results depend on, and what its caches do: texts that are equal where these are.
#pragma once
#include <string>

#include "base/json.h"
#include "tools/job/run_session.h"

namespace longhaul {

// {"model": .., "settings": ..}: what results depend on besides the requests. Of a session with
// heads, formats and preparation. Reads samples of the weights' files.
Json fingerprint_of(const RunSession& session, const JobConfig& job, const AnswerConfig& answers);

// What caches depend on besides the tokens. Of a session with its fingerprint.
std::string identity_of(const RunSession& session, const JobConfig& job,
                        const AnswerConfig& answers);

}  // namespace longhaul
