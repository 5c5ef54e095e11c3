#include "coordinator/chat_preparation.h"

#include <algorithm>

#include "coordinator/chat_body.h"
#include "model/chat/conversation.h"

namespace longhaul {
namespace {

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const chat::Text& text,
                                 bool parse_special, int n_threads) {
  std::vector<TextRange> literal;
  if (!parse_special) {
    for (const chat::ByteRange& range : text.data()) literal.push_back({range.begin, range.end});
  }
  return tokenizer.encode(text.bytes(),
                          {.add_special_tokens = false, .parse_special = true, .literal = literal},
                          n_threads);
}

// Where the documents end in the text; 0 when they do not stand in it. Templates may strip the ends
// of a message, and so the documents' front.
std::size_t end_of(std::string_view documents, std::string_view text) {
  const std::size_t first = documents.find_first_not_of(" \t\r\n");
  const std::size_t last = documents.find_last_not_of(" \t\r\n");
  if (first == std::string_view::npos) return 0;
  const std::string_view inner = documents.substr(first, last + 1 - first);
  const std::size_t at = text.find(inner);
  return at == std::string_view::npos ? 0 : at + inner.size();
}

// Whether the text would be the same without them. A template may also write them in another form,
// so that they are not found.
bool leaves_out(std::string_view documents, const ChatPrompt& prompt, const ChatSetup& setup,
                const chat::Text& text) {
  const bool is_blank = documents.find_first_not_of(" \t\r\n") == std::string_view::npos;
  return !is_blank && chat_text(prompt, {}, setup).bytes() == text.bytes();
}

}  // namespace

chat::Text chat_text(const ChatPrompt& prompt, std::string_view documents, const ChatSetup& setup) {
  Json variables = documents.empty() ? prompt.variables : with_documents(prompt, documents);
  const Json* tools = variables.find("tools");
  const bool has_tools = tools != nullptr && setup.with_tools != nullptr;
  const chat::ChatTemplate& chosen = has_tools ? *setup.with_tools : setup.usual;
  if (!chosen.takes_content_parts()) {
    for (auto& [name, value] : std::get<JsonObject>(variables.value()))
      if (name == "messages") value = chat::with_content_as_text(value);
  }
  const Json given = chat::template_variables(variables);
  return chosen.render({.variables = &given,
                        .bos_token = setup.bos_token,
                        .eos_token = setup.eos_token,
                        .add_generation_prompt = prompt.add_generation_prompt,
                        .now = setup.now});
}

ChatIds chat_ids(const ChatPrompt& prompt, std::string_view documents, const ChatSetup& setup,
                 const Tokenizer& tokenizer, bool parse_special, int n_threads) {
  const chat::Text text = chat_text(prompt, documents, setup);
  ChatIds ids{.ids = encode(tokenizer, text, parse_special, n_threads)};
  if (const std::size_t end = end_of(documents, text.bytes()); end > 0) {
    const auto head = encode(tokenizer, text.part(0, end), parse_special, n_threads);
    ids.n_document = static_cast<std::size_t>(
        std::mismatch(head.begin(), head.end(), ids.ids.begin(), ids.ids.end()).first -
        head.begin());
  } else {
    require(!leaves_out(documents, prompt, setup, text),
            "the chat template does not write the message in which the documents stand; choose "
            "another documents_place, or another template with --chat-template");
  }
  return ids;
}

}  // namespace longhaul
