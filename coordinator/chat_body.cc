#include "coordinator/chat_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr std::array<std::string_view, 3> kPlaces = {"first_user", "system", "last_user"};

const std::string& role_of(const Json& message) {
  return std::get<std::string>(message.find("role")->value());
}

void check_content(const JsonField& content) {
  if (content.json().is_string()) return;
  if (!content.json().is_array())
    content.fail(fmt::format("expected a text or a list of text parts, found {}",
                             content.json().kind_name()));
  for (std::size_t i = 0; i < content.size(); ++i) {
    const JsonField part = content.at(i);
    if (part.at("type").as_string() != "text")
      part.at("type").fail(
          fmt::format("\"{}\" is not supported; content is text", part.at("type").as_string()));
    part.at("text").as_string();
  }
}

void check_message(const JsonField& message) {
  if (!message.json().is_object())
    message.fail(fmt::format("expected an object with role and content, found {}",
                             message.json().kind_name()));
  if (message.at("role").as_string().empty()) message.at("role").fail("is empty");
  // A message of tool calls alone has no content.
  if (const auto content = message.find("content")) {
    check_content(*content);
  } else if (!message.find("tool_calls")) {
    message.at("content");
    message.fail("content is null");
  }
}

DocumentPlace parse_place(const JsonField& field) {
  const auto at = std::find(kPlaces.begin(), kPlaces.end(), field.as_string());
  if (at == kPlaces.end())
    field.fail(fmt::format("\"{}\" is none of first_user, system, last_user", field.as_string()));
  return static_cast<DocumentPlace>(at - kPlaces.begin());
}

// The message whose text the documents stand before; -1: a system message is to be made.
std::ptrdiff_t place_in(const JsonArray& messages, DocumentPlace place) {
  const auto is = [](std::string_view role) {
    return [role](const Json& message) { return role_of(message) == role; };
  };
  if (place == DocumentPlace::kSystem)
    return !messages.empty() && role_of(messages[0]) == "system" ? 0 : -1;
  if (place == DocumentPlace::kFirstUser)
    return std::find_if(messages.begin(), messages.end(), is("user")) - messages.begin();
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is("user"));
  return last == messages.rend() ? static_cast<std::ptrdiff_t>(messages.size())
                                 : messages.rend() - last - 1;
}

JsonArray& messages_of(Json& variables) {
  for (auto& [name, value] : std::get<JsonObject>(variables.value()))
    if (name == "messages") return std::get<JsonArray>(value.value());
  throw Error(ErrorCode::kInternal, "a conversation without messages");
}

const JsonArray& messages_of(const Json& variables) {
  return std::get<JsonArray>(variables.find("messages")->value());
}

// Before the text of a message: of its first part where there are parts.
void put_before(Json& message, std::string_view text) {
  for (auto& [name, content] : std::get<JsonObject>(message.value())) {
    if (name != "content") continue;
    if (auto* whole = std::get_if<std::string>(&content.value())) {
      whole->insert(0, text);
      return;
    }
    auto* parts = std::get_if<JsonArray>(&content.value());
    if (parts == nullptr) break;
    if (parts->empty()) {
      parts->emplace_back(JsonObject{{"type", "text"}, {"text", std::string(text)}});
      return;
    }
    for (auto& [key, value] : std::get<JsonObject>(parts->front().value()))
      if (key == "text") std::get<std::string>(value.value()).insert(0, text);
    return;
  }
  throw Error(ErrorCode::kInvalidArgument, "the documents' message has no text");
}

}  // namespace

ChatPrompt parse_chat_prompt(const JsonField& body, bool has_documents) {
  const JsonField messages = body.at("messages");
  if (messages.size() == 0) messages.fail("has no message");
  for (std::size_t i = 0; i < messages.size(); ++i) check_message(messages.at(i));
  ChatPrompt prompt;
  JsonObject variables{{"messages", messages.json()}};
  const auto choice = body.find("tool_choice");
  if (choice && choice->json().is_object())
    choice->fail("a certain tool cannot be asked for; answers are text");
  const bool none = choice && choice->as_string() == "none";
  if (choice && !none && choice->as_string() != "auto")
    choice->fail("only \"auto\" and \"none\" are supported; answers are text");
  if (const auto tools = body.find("tools"); tools && tools->size() > 0 && !none)
    variables.emplace_back("tools", tools->json());
  if (const auto effort = body.find("reasoning_effort"))
    variables.emplace_back("reasoning_effort", effort->as_string());
  if (const auto more = body.find("chat_template_kwargs")) {
    if (!more->json().is_object()) more->fail("expected an object");
    for (const auto& [name, value] : std::get<JsonObject>(more->json().value())) {
      if (name == "messages" || name == "tools" || name == "add_generation_prompt")
        more->fail(fmt::format("\"{}\" belongs into the body itself", name));
      variables.emplace_back(name, value);
    }
  }
  prompt.variables = std::move(variables);
  if (const auto flag = body.find("add_generation_prompt"))
    prompt.add_generation_prompt = flag->as_bool();
  if (const auto place = body.find("documents_place")) prompt.place = parse_place(*place);
  if (const auto separator = body.find("documents_separator"))
    prompt.separator = separator->as_string();
  const JsonArray& list = messages_of(std::as_const(prompt.variables));
  if (has_documents && place_in(list, prompt.place) == static_cast<std::ptrdiff_t>(list.size()))
    messages.fail("has no user message for the documents; see documents_place");
  return prompt;
}

Json with_documents(const ChatPrompt& prompt, std::string_view text) {
  Json changed = prompt.variables;
  JsonArray& messages = messages_of(changed);
  const std::ptrdiff_t at = place_in(messages, prompt.place);
  if (at < 0) {
    messages.insert(messages.begin(),
                    Json(JsonObject{{"role", "system"}, {"content", std::string(text)}}));
    return changed;
  }
  require(at < static_cast<std::ptrdiff_t>(messages.size()),
          "the conversation has no user message for the documents");
  put_before(messages[static_cast<std::size_t>(at)], text);
  return changed;
}

std::string before_documents(const ChatPrompt& prompt) {
  JsonObject before;
  for (const auto& [name, value] : std::get<JsonObject>(prompt.variables.value())) {
    if (name != "messages") {
      before.emplace_back(name, value);
      continue;
    }
    const JsonArray& messages = std::get<JsonArray>(value.value());
    const auto n = std::max<std::ptrdiff_t>(place_in(messages, prompt.place), 0);
    before.emplace_back(name, JsonArray(messages.begin(), messages.begin() + n));
  }
  return fmt::format("chat {} {} {}", static_cast<int>(prompt.place), prompt.separator,
                     to_text(Json(std::move(before))));
}

}  // namespace longhaul
