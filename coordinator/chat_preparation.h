// Chat requests as token ids: the template is rendered over the conversation with its documents,
// and special tokens count where the template wrote them, never where a message or document did.
#pragma once
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/requests.h"
#include "model/chat/chat_template.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

// What chat requests are rendered with. Immutable.
struct ChatSetup {
  chat::ChatTemplate usual;
  std::shared_ptr<const chat::ChatTemplate>
      with_tools;  // for requests with tools; null: the usual one
  std::string bos_token;
  std::string eos_token;
  std::tm now = {};  // local time when the run began first, for templates that write the date
};

struct ChatIds {
  std::vector<std::int32_t> ids;
  // Leading ids up to the end of the documents, as far as they do not depend on what follows; 0
  // without documents, or where the template does not write them as they are.
  std::size_t n_document = 0;
};

// `documents`: their texts, valid UTF-8, with the separator after each. `parse_special`: special
// tokens in messages and documents count too. Throws kInvalidArgument when the template refuses.
ChatIds chat_ids(const ChatPrompt& prompt, std::string_view documents, const ChatSetup& setup,
                 const Tokenizer& tokenizer, bool parse_special, int n_threads);

// The conversation as the template writes it.
chat::Text chat_text(const ChatPrompt& prompt, std::string_view documents, const ChatSetup& setup);

}  // namespace longhaul
