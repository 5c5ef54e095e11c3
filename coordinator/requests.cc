#include "coordinator/requests.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "coordinator/request_body.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxIdBytes = 512;

void check_envelope(const JsonField& line) {
  for (const auto& [name, value] : std::get<JsonObject>(line.json().value())) {
    if (name != "custom_id" && name != "method" && name != "url" && name != "body")
      line.fail(fmt::format("unknown field \"{}\"; a line has custom_id, method, url, body", name));
  }
  if (line.at("method").as_string() != "POST") line.at("method").fail("must be \"POST\"");
}

Request parse_body(const JsonField& line) {
  const JsonField url = line.at("url");
  if (url.as_string() == "/v1/chat/completions") return parse_chat_body(line.at("body"));
  if (url.as_string() == "/v1/completions") return parse_completion_body(line.at("body"));
  url.fail(fmt::format("\"{}\" is not served; use /v1/chat/completions or /v1/completions",
                       url.as_string()));
}

Request parse_line(std::string_view text, const std::string& source) {
  if (text.size() > kMaxLineBytes) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: the line has {} MB; at most {} MB are accepted. Put long texts "
                            "into files and name them in body.documents",
                            source, text.size() >> 20, kMaxLineBytes >> 20));
  }
  const Json json = parse_json(text, source);
  const JsonField line(json, source);
  if (!json.is_object())
    line.fail(fmt::format("expected an object with custom_id, method, url, body; found {}",
                          json.kind_name()));
  const JsonField id = line.at("custom_id");
  if (id.as_string().empty() || id.as_string().size() > kMaxIdBytes)
    id.fail(fmt::format("must have 1 to {} bytes", kMaxIdBytes));
  check_envelope(line);
  Request request = parse_body(line);
  request.custom_id = id.as_string();
  return request;
}

// Of a line with a problem, which may be anything.
std::string custom_id_in(std::string_view line) {
  try {
    const Json json = parse_json(line, "");
    const Json* id = json.is_object() ? json.find("custom_id") : nullptr;
    const bool is_good = id != nullptr && id->is_string() &&
                         std::get<std::string>(id->value()).size() <= kMaxIdBytes;
    return is_good ? std::get<std::string>(id->value()) : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string describe(const Problem& problem, std::string_view source) {
  return fmt::format("{}:{}: {}", source, problem.line, problem.message);
}

ParsedRequests parse_requests(std::string_view text, std::string_view source) {
  ParsedRequests parsed;
  std::unordered_map<std::string, std::int64_t> line_of_id;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    // Errors carry "source:line: reason"; the front is cut off again, it is told apart in Problem.
    const std::string place = fmt::format("{}:{}", source, number);
    try {
      Request request = parse_line(line, place);
      request.line = number;
      const auto [first, is_new] = line_of_id.emplace(request.custom_id, number);
      if (!is_new) {
        parsed.problems.push_back({number,
                                   fmt::format("custom_id \"{}\" was already used in line {}",
                                               request.custom_id, first->second),
                                   request.custom_id});
        continue;
      }
      parsed.requests.push_back(std::move(request));
    } catch (const Error& error) {
      std::string_view reason = error.what();
      if (reason.starts_with(place + ": ")) reason.remove_prefix(place.size() + 2);
      const bool is_sane = line.size() <= kMaxLineBytes;
      parsed.problems.push_back(
          {number, std::string(reason), is_sane ? custom_id_in(line) : std::string()});
    }
  }
  return parsed;
}

}  // namespace longhaul
