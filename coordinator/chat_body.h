// The conversation of a /v1/chat/completions body. Pure.
#pragma once
#include "base/json.h"
#include "coordinator/requests.h"

namespace longhaul {

// Messages, tools and what else the template is told. Content is a text or a list of text parts.
// Throws kCorruptData with path and reason.
ChatPrompt parse_chat_prompt(const JsonField& body, bool has_documents);

// The same conversation with `text`, which is the documents with a separator after each, in its
// place. Throws kInvalidArgument where there is no such message.
Json with_documents(const ChatPrompt& prompt, std::string_view text);

// What stands before the documents, as text: requests for which it is the same, and the documents
// too, share their prefill.
std::string before_documents(const ChatPrompt& prompt);

}  // namespace longhaul
