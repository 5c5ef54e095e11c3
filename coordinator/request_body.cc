#include "coordinator/request_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/sha256.h"
#include "coordinator/body_fields.h"
#include "coordinator/chat_body.h"
#include "coordinator/form_fields.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxStops = 16;
constexpr std::int64_t kMaxLogprobs = 20;
constexpr std::int64_t kAnyCount = std::numeric_limits<std::int32_t>::max();

constexpr std::int64_t kMaxAnswers = 128;  // to one prompt: OpenAI's limit of n
constexpr std::size_t kMaxPrompts = 2048;  // of one request

void refuse_streaming(const JsonField& body) {
  if (const auto stream = body.find("stream"); stream && stream->as_bool())
    stream->fail("results go to a file, they cannot be streamed; remove it or say false");
}

void parse_counts(const JsonField& body, Request& request) {
  if (const auto field = body.find("n")) request.n = field->as_integer(1, kMaxAnswers);
  request.best_of = request.n;
  if (const auto field = body.find("best_of")) {
    request.best_of = field->as_integer(1, kMaxAnswers);
    if (request.best_of < request.n)
      field->fail(fmt::format("is {}, less than the {} answers that n asks for", request.best_of,
                              request.n));
  }
}

double number_between(const JsonField& field, double min, double max) {
  const double value = field.as_number();
  if (!(value >= min && value <= max))
    field.fail(fmt::format("{} is outside [{}, {}]", value, min, max));
  return value;
}

std::vector<std::int32_t> parse_prompt_ids(const JsonField& field) {
  std::vector<std::int32_t> ids(field.size());
  const auto& list = std::get<JsonArray>(field.json().value());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto* id = std::get_if<std::int64_t>(&list[i].value());
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<std::int32_t>::max())
      field.at(i).fail("expected a token id (an integer from 0)");
    ids[i] = static_cast<std::int32_t>(*id);
  }
  return ids;
}

// A text, a list of ids, or a list of either.
std::vector<Prompt> parse_prompts(const JsonField& field) {
  if (field.json().is_string()) return {field.as_string()};
  if (!field.json().is_array())
    field.fail(fmt::format("expected a string, a list of token ids, or a list of these, found {}",
                           field.json().kind_name()));
  const std::size_t n = field.size();
  const auto& list = std::get<JsonArray>(field.json().value());
  const bool is_text = n > 0 && list[0].is_string();
  if (!is_text && (n == 0 || !list[0].is_array())) return {parse_prompt_ids(field)};
  if (n > kMaxPrompts)
    field.fail(fmt::format("{} prompts; at most {} are accepted", n, kMaxPrompts));
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < n; ++i) {
    if (is_text) {
      prompts.emplace_back(field.at(i).as_string());
    } else {
      if (!list[i].is_array()) field.at(i).fail("expected a list of token ids, as before it");
      prompts.emplace_back(parse_prompt_ids(field.at(i)));
    }
  }
  return prompts;
}

std::vector<std::string> parse_stop(const JsonField& field) {
  std::vector<std::string> stops;
  if (field.json().is_string()) {
    stops.push_back(field.as_string());
  } else {
    const std::size_t n = field.size();
    if (n > kMaxStops)
      field.fail(fmt::format("{} stop strings; at most {} are accepted", n, kMaxStops));
    for (std::size_t i = 0; i < n; ++i) stops.push_back(field.at(i).as_string());
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) field.fail("an empty stop string would end every answer at once");
  }
  return stops;
}

std::string parse_sha256(const JsonField& field) {
  std::string text = field.as_string();
  for (char& c : text) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
      field.fail("a SHA-256 has 64 hexadecimal digits");
  }
  if (text.size() != 64) field.fail("a SHA-256 has 64 hexadecimal digits");
  return text;
}

DocumentRef parse_document(const JsonField& entry) {
  if (!entry.json().is_object())
    entry.fail(R"(expected {"path": "file.txt"} or {"text": "..."}, optionally with "sha256")");
  for (const auto& [name, value] : std::get<JsonObject>(entry.json().value())) {
    if (name != "path" && name != "text" && name != "sha256" && name != "title")
      entry.fail(fmt::format("unknown field \"{}\"; accepted are path, text, sha256, title", name));
  }
  DocumentRef document;
  if (const auto text = entry.find("text")) {
    if (entry.find("path")) entry.fail("has both a path and a text; give one of them");
    document.text = text->as_string();
  } else {
    const std::string& path = entry.at("path").as_string();
    if (path.empty() || path.find('\0') != std::string::npos)
      entry.at("path").fail("expected the name of a file");
    document.path = path;
  }
  if (const auto sha256 = entry.find("sha256")) document.sha256.emplace(parse_sha256(*sha256));
  return document;
}

Json sorted_by_key(const Json& json) {
  if (const auto* list = std::get_if<JsonArray>(&json.value())) {
    JsonArray sorted;
    sorted.reserve(list->size());
    for (const Json& element : *list) sorted.push_back(sorted_by_key(element));
    return sorted;
  }
  if (const auto* object = std::get_if<JsonObject>(&json.value())) {
    JsonObject sorted;
    for (const auto& [name, value] : *object) sorted.emplace_back(name, sorted_by_key(value));
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return sorted;
  }
  return json;
}

void parse_sampling(const JsonField& body, Request& request) {
  if (const auto field = body.find("temperature"))
    request.temperature = number_between(*field, 0.0, 1000.0);
  if (const auto field = body.find("top_p")) request.top_p = number_between(*field, 0.0, 1.0);
  if (const auto field = body.find("min_p")) request.min_p = number_between(*field, 0.0, 1.0);
  if (const auto field = body.find("top_k")) {
    const std::int64_t top_k = field->as_integer(-1, kAnyCount);  // vLLM's -1 also means off
    request.top_k = std::max<std::int64_t>(top_k, 0);
  }
  if (const auto field = body.find("seed")) {
    request.seed =
        static_cast<std::uint64_t>(field->as_integer(0, std::numeric_limits<std::int64_t>::max()));
  }
}

// {"TOKEN ID": bias}. As in vLLM, biases beyond +-100 count as +-100.
std::vector<TokenBias> parse_logit_bias(const JsonField& field) {
  if (!field.json().is_object())
    field.fail(fmt::format("expected an object of token ids and biases, found {}",
                           field.json().kind_name()));
  std::vector<TokenBias> biases;
  for (const auto& [name, value] : std::get<JsonObject>(field.json().value())) {
    std::int32_t token = -1;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, token);
    if (read.ec != std::errc() || read.ptr != end || token < 0)
      field.fail(fmt::format("\"{}\" is not a token id", name));
    const double bias = field.at(name).as_number();
    biases.push_back({token, static_cast<float>(std::clamp(bias, -100.0, 100.0))});
  }
  std::sort(biases.begin(), biases.end(),
            [](const TokenBias& a, const TokenBias& b) { return a.token < b.token; });
  const auto twice =
      std::adjacent_find(biases.begin(), biases.end(),
                         [](const TokenBias& a, const TokenBias& b) { return a.token == b.token; });
  if (twice != biases.end()) field.fail(fmt::format("token id {} is there twice", twice->token));
  return biases;
}

// What changes logits before a token is picked, with vLLM's ranges.
void parse_logit_rules(const JsonField& body, Request& request) {
  if (const auto field = body.find("presence_penalty"))
    request.presence_penalty = number_between(*field, -2.0, 2.0);
  if (const auto field = body.find("frequency_penalty"))
    request.frequency_penalty = number_between(*field, -2.0, 2.0);
  if (const auto field = body.find("repetition_penalty"))
    request.repetition_penalty = number_between(*field, 1e-3, 1e3);
  if (const auto field = body.find("logit_bias")) request.logit_bias = parse_logit_bias(*field);
}

std::vector<std::int32_t> parse_token_ids(const JsonField& field) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < field.size(); ++i)
    ids.push_back(static_cast<std::int32_t>(
        field.at(i).as_integer(0, std::numeric_limits<std::int32_t>::max())));
  return ids;
}

// What bodies of both urls have.
Request parse_common(const JsonField& body, Endpoint endpoint) {
  if (!body.json().is_object())
    body.fail(fmt::format("expected an object, found {}", body.json().kind_name()));
  check_fields(body, endpoint);
  refuse_streaming(body);
  Request request;
  parse_counts(body, request);
  request.body_sha256 = sha256_of(to_text(sorted_by_key(body.json())));
  if (const auto field = body.find("documents")) {
    for (std::size_t i = 0; i < field->size(); ++i)
      request.documents.push_back(parse_document(field->at(i)));
  }
  if (const auto field = body.find("max_tokens"))
    request.max_tokens = field->as_integer(0, kAnyCount);
  parse_sampling(body, request);
  parse_logit_rules(body, request);
  if (const auto field = body.find("min_tokens"))
    request.min_tokens = field->as_integer(0, kAnyCount);
  if (const auto field = body.find("stop")) request.stop = parse_stop(*field);
  if (const auto field = body.find("stop_token_ids"))
    request.stop_token_ids = parse_token_ids(*field);
  if (const auto field = body.find("ignore_eos")) request.ignore_eos = field->as_bool();
  request.form = parse_form(body);
  return request;
}

}  // namespace

Request parse_completion_body(const JsonField& body) {
  Request request = parse_common(body, Endpoint::kCompletions);
  request.prompts = parse_prompts(body.at("prompt"));
  if (const auto field = body.find("logprobs")) {
    if (std::holds_alternative<bool>(field->json().value()))
      field->fail(fmt::format("/v1/completions takes a number from 0 to {}", kMaxLogprobs));
    request.n_logprobs = field->as_integer(0, kMaxLogprobs);
  }
  if (const auto field = body.find("echo")) request.echo = field->as_bool();
  return request;
}

Request parse_chat_body(const JsonField& body) {
  Request request = parse_common(body, Endpoint::kChat);
  request.prompts = {parse_chat_prompt(body, !request.documents.empty())};
  // OpenAI's newer name for the same.
  if (const auto field = body.find("max_completion_tokens")) {
    const std::int64_t n = field->as_integer(0, kAnyCount);
    if (request.max_tokens && *request.max_tokens != n)
      field->fail(
          fmt::format("is {}, and \"max_tokens\" {}: give one of them", n, *request.max_tokens));
    request.max_tokens = n;
  }
  const auto logprobs = body.find("logprobs");
  const auto top = body.find("top_logprobs");
  if (logprobs && logprobs->as_bool())
    request.n_logprobs = top ? top->as_integer(0, kMaxLogprobs) : 0;
  if (top && request.n_logprobs < 0 && top->as_integer(0, kMaxLogprobs) > 0)
    top->fail("needs \"logprobs\": true");
  return request;
}

}  // namespace longhaul
