// The fields of a body that ask for an answer in a given form: OpenAI's response_format, vLLM's
// guided_json, guided_regex, guided_choice and structured_outputs.
#pragma once
#include <optional>

#include "base/json.h"
#include "model/forms/form.h"

namespace longhaul {

// The one form that the body asks for, checked to its end (model/forms); nullopt: none. Throws
// kCorruptData naming the field: two forms at once, a kind that is not supported (structural
// tags), and what is wrong with the form itself.
std::optional<forms::FormSource> parse_form(const JsonField& body);

}  // namespace longhaul
