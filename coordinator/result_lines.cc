#include "coordinator/result_lines.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/sha256.h"
#include "coordinator/request_jobs.h"

namespace longhaul {
namespace {

// The same request gets the same id in every run.
std::string short_id(const RequestIdentity& identity) {
  return sha256_of(identity.custom_id + '\0' + identity.body_sha256 + identity.documents_sha256)
      .substr(0, 24);
}

Json identity_json(const RequestIdentity& identity) {
  JsonObject json{{"body_sha256", identity.body_sha256}};
  if (!identity.documents_sha256.empty())
    json.emplace_back("documents_sha256", identity.documents_sha256);
  return json;
}

Json usage_of(const ResultLine& parts) {
  const std::int64_t n_prompt = parts.prepared->n_prompt_tokens;
  std::int64_t n_new = 0;  // of answers that are not given back, too
  for (const Answer& answer : *parts.answers) n_new += answer.n_generated();
  return JsonObject{
      {"prompt_tokens", n_prompt},
      {"completion_tokens", n_new},
      {"total_tokens", n_prompt + n_new},
      {"prompt_tokens_details", JsonObject{{"cached_tokens", parts.prepared->n_cached_tokens}}}};
}

Json settings_of(const PreparedRequest& prepared) {
  static const LogitRules kNone;
  const PreparedPrompt& prompt = prepared.prompts.front();
  const AnswerSpec& answer = prompt.answer;
  Json settings = to_json(prepared.sampling, prompt.rules == nullptr ? kNone : *prompt.rules);
  auto& members = std::get<JsonObject>(settings.value());
  members.emplace_back("max_tokens", prepared.max_tokens);
  JsonArray stop;
  for (const std::string& text : answer.stop) stop.emplace_back(text);
  members.emplace_back("stop", std::move(stop));
  if (answer.min_tokens > 0) members.emplace_back("min_tokens", answer.min_tokens);
  if (prepared.n_answers > 1) members.emplace_back("n", prepared.n_kept);
  if (prepared.n_answers > prepared.n_kept) members.emplace_back("best_of", prepared.n_answers);
  return settings;
}

constexpr std::string_view kChecksumKey = ",\"line_sha256\":\"";
constexpr std::string_view kLineEnd = "}}";  // of "longhaul" and of the line
constexpr std::size_t kDigits = 64;

}  // namespace

std::string sealed_line(JsonObject members, const RequestIdentity& identity) {
  members.emplace_back("longhaul", identity_json(identity));
  std::string text = to_text(std::move(members));
  const std::string checksum = sha256_of(text);
  text.resize(text.size() - kLineEnd.size());
  return fmt::format("{}{}{}\"{}\n", text, kChecksumKey, checksum, kLineEnd);
}

std::string result_line(const ResultLine& parts) {
  const std::string id = short_id(*parts.identity);
  JsonArray choices;
  const bool is_chat = parts.prepared->is_chat;
  for (const Answer* answer : kept_answers(*parts.prepared, *parts.answers)) {
    const auto index = static_cast<std::int64_t>(choices.size());
    choices.emplace_back(is_chat ? answer->chat_choice(index) : answer->choice(index));
  }
  JsonObject body{{"id", (is_chat ? "chatcmpl-" : "cmpl-") + id},
                  {"object", is_chat ? "chat.completion" : "text_completion"},
                  {"created", parts.created},
                  {"model", std::string(parts.model)},
                  {"choices", std::move(choices)},
                  {"usage", usage_of(parts)},
                  {"system_fingerprint", std::string(parts.system_fingerprint)},
                  {"sampling", settings_of(*parts.prepared)}};
  JsonObject response{{"status_code", 200}, {"request_id", "req-" + id}, {"body", std::move(body)}};
  JsonObject line{{"id", "batch-" + id},
                  {"custom_id", parts.identity->custom_id},
                  {"response", std::move(response)},
                  {"error", nullptr}};
  return sealed_line(std::move(line), *parts.identity);
}

std::string error_line(const RequestIdentity& identity, std::string_view code,
                       std::string_view message) {
  return sealed_line(
      {{"id", "batch-" + short_id(identity)},
       {"custom_id", identity.custom_id},
       {"response", nullptr},
       {"error", JsonObject{{"code", std::string(code)}, {"message", std::string(message)}}}},
      identity);
}

std::string bad_line_record(const Problem& problem) {
  const std::string id = sha256_of(fmt::format("{}:{}", problem.line, problem.message));
  const Json line = JsonObject{
      {"id", "batch-" + id.substr(0, 24)},
      {"custom_id", problem.custom_id.empty() ? Json(nullptr) : Json(problem.custom_id)},
      {"response", nullptr},
      {"error",
       JsonObject{{"code", "bad_line"}, {"message", problem.message}, {"line", problem.line}}},
      {"longhaul", JsonObject{{"bad_line", problem.line}}}};
  return to_text(line) + "\n";
}

bool is_bad_line_record(std::string_view line) {
  if (line.find("\"bad_line\"") == std::string_view::npos) return false;  // most of them
  try {
    const Json json = parse_json(line, "");
    const Json* own = json.is_object() ? json.find("longhaul") : nullptr;
    return own != nullptr && own->is_object() && own->find("bad_line") != nullptr;
  } catch (const Error&) {
    return false;
  }
}

RequestIdentity identity_of_line(std::string_view line, std::string_view source) {
  const Json json = parse_json(line, source);
  const JsonField root(json, std::string(source));
  RequestIdentity identity;
  identity.custom_id = root.at("custom_id").as_string();
  const JsonField own = root.at("longhaul");
  identity.body_sha256 = own.at("body_sha256").as_string();
  if (const auto documents = own.find("documents_sha256"))
    identity.documents_sha256 = documents->as_string();
  return identity;
}

bool is_for_want_of_memory(std::string_view line) {
  if (line.find(kOutOfMemoryCode) == std::string_view::npos) return false;  // most of them
  const Json json = parse_json(line, "");
  const Json* error = json.find("error");
  const Json* code = error != nullptr && error->is_object() ? error->find("code") : nullptr;
  const auto* text = code != nullptr ? std::get_if<std::string>(&code->value()) : nullptr;
  return text != nullptr && *text == kOutOfMemoryCode;
}

LineState state_of_line(std::string_view line) {
  const std::size_t tail = kChecksumKey.size() + kDigits + 1 + kLineEnd.size();
  if (line.size() > tail && line.ends_with("\"}}")) {
    const std::string_view end = line.substr(line.size() - tail);
    if (end.starts_with(kChecksumKey)) {
      const std::string text = fmt::format("{}{}", line.substr(0, line.size() - tail), kLineEnd);
      return sha256_of(text) == end.substr(kChecksumKey.size(), kDigits) ? LineState::kAsWritten
                                                                         : LineState::kEdited;
    }
  }
  // With a checksum at another place it was written anew by some other program.
  return line.find("\"line_sha256\"") == std::string_view::npos ? LineState::kUnverified
                                                                : LineState::kEdited;
}

}  // namespace longhaul
