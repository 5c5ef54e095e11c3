#include "model/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace longhaul::chat {
namespace {

constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking",
                                                        "reasoning"};

JsonObject message_of(const JsonObject& given) {
  JsonObject message;
  std::copy_if(given.begin(), given.end(), std::back_inserter(message),
               [](const auto& member) { return !member.second.is_null(); });
  const Json all(message);
  for (const std::string_view name : kReasoning) {
    const Json* reasoning = all.find(name);
    if (reasoning == nullptr) continue;
    std::erase_if(message, [](const auto& member) { return member.first == kReasoning[0]; });
    message.emplace_back(kReasoning[0], *reasoning);
    if (all.find("thinking") == nullptr) message.emplace_back("thinking", *reasoning);
    break;
  }
  return message;
}

std::string text_of_parts(const JsonArray& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json* part = parts[i].find("text");
    if (part == nullptr || !part->is_string()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("content[{}] is no text part; the template takes text only", i));
    }
    if (i > 0) text += '\n';
    text += std::get<std::string>(part->value());
  }
  return text;
}

}  // namespace

Json template_variables(const Json& given) {
  JsonObject variables;
  for (const auto& [name, value] : std::get<JsonObject>(given.value())) {
    if (name != "messages") {
      variables.emplace_back(name, value);
      continue;
    }
    JsonArray messages;
    for (const Json& message : std::get<JsonArray>(value.value()))
      messages.emplace_back(message_of(std::get<JsonObject>(message.value())));
    variables.emplace_back(name, std::move(messages));
  }
  for (const char* name : {"tools", "documents"})
    if (given.find(name) == nullptr) variables.emplace_back(name, nullptr);
  return variables;
}

Json with_content_as_text(const Json& messages) {
  Json changed = messages;
  for (Json& message : std::get<JsonArray>(changed.value())) {
    for (auto& [name, value] : std::get<JsonObject>(message.value())) {
      if (name != "content" || !value.is_array()) continue;
      value = Json(text_of_parts(std::get<JsonArray>(value.value())));
    }
  }
  return changed;
}

}  // namespace longhaul::chat
