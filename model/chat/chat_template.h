// A model's chat template: how a conversation becomes the text that the model was trained on. An
// engine for the Jinja that published templates use, rendered as Hugging Face transformers does
// (apply_chat_template): trim_blocks, lstrip_blocks, its tojson, raise_exception, strftime_now,
// {% generation %}, {% break %}. start here: ChatTemplate.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "model/chat/evaluator.h"
#include "model/chat/text.h"

namespace longhaul::chat {

// What is rendered. Texts of `variables` are data: their special tokens stay text.
struct RenderRequest {
  // A JSON object: messages, tools, documents, and whatever a template may be told
  // (model/chat/conversation.h).
  const Json* variables = nullptr;
  std::string bos_token =
      {};  // these two are the template's: they count as special tokens; "": none
  std::string eos_token = {};
  bool add_generation_prompt = true;
  std::tm now = {};  // local time, for strftime_now
};

// Immutable; any number of threads may render at once.
class ChatTemplate {
 public:
  // `source` is named in errors. Throws kCorruptData for bad syntax and kUnsupported for what the
  // engine cannot do: "<source>:<line>: <reason>".
  static ChatTemplate parse(std::string_view text, std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Throws kInvalidArgument: "<source>:<line>: <reason>", also when the template raises an
  // exception or uses more than `limits`.
  Text render(const RenderRequest& request, const RenderLimits& limits = {}) const;

  // Whether it goes through the parts of a message's content. Others want content as one text.
  bool takes_content_parts() const;
  const std::string& source() const;
  const std::string& text() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace longhaul::chat
