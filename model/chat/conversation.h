// What a template is told about a conversation: the form in which transformers' apply_chat_template
// hands messages over. Pure.
#pragma once
#include "base/json.h"

namespace longhaul::chat {

// `given`: an object with "messages" and whatever else the template is to be told. Members of
// messages that are null are left out, a reasoning is there under all its names (reasoning_content,
// thinking, reasoning), and "tools" and "documents" are none unless given.
Json template_variables(const Json& given);

// Each message's content as one text, its text parts joined by line breaks, for templates that take
// no parts. Throws kInvalidArgument for parts that are no text.
Json with_content_as_text(const Json& messages);

}  // namespace longhaul::chat
