// The fields that a body may have, of both urls: what Longhaul understands, what never changes an
// answer, and what is accepted with the value that asks for nothing. All fields of OpenAI's and
// vLLM's bodies are here, so that files written for them are told from misspelt ones.
#pragma once
#include <string>

#include "base/json.h"

namespace longhaul {

enum class Endpoint { kCompletions, kChat };

// Throws kCorruptData with path and reason: for an unknown field with the known name that is
// nearest, for a field that is not supported with the values that are.
void check_fields(const JsonField& body, Endpoint endpoint);

// Fields of a body that are understood, and those that are accepted without effect; for messages
// and --help.
std::string accepted_body_fields(Endpoint endpoint);

}  // namespace longhaul
