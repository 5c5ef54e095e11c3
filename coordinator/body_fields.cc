#include "coordinator/body_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "base/spelling.h"

namespace longhaul {
namespace {

enum class Kind {
  kUsed,     // changes the answer as it says
  kIgnored,  // never changes the text of an answer
  kNeutral,  // only with one of the values of `neutral`, a JSON list; null is always one
};
enum class Where { kBoth, kCompletions, kChat };

struct Field {
  std::string_view name;
  Kind kind = Kind::kUsed;
  Where where = Where::kBoth;
  std::string_view neutral = "[]";
};

constexpr Field kFields[] = {
    {"prompt", Kind::kUsed, Where::kCompletions},
    {"messages", Kind::kUsed, Where::kChat},
    {"documents"},
    {"documents_place", Kind::kUsed, Where::kChat},
    {"documents_separator", Kind::kUsed, Where::kChat},
    {"max_tokens"},
    {"max_completion_tokens", Kind::kUsed, Where::kChat},
    {"temperature"},
    {"top_p"},
    {"top_k"},
    {"min_p"},
    {"seed"},
    {"presence_penalty"},
    {"frequency_penalty"},
    {"repetition_penalty"},
    {"logit_bias"},
    {"min_tokens"},
    {"stop"},
    {"stop_token_ids"},
    {"ignore_eos"},
    {"response_format"},
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"structured_outputs"},
    {"n"},
    {"logprobs"},
    {"top_logprobs", Kind::kUsed, Where::kChat},
    {"echo", Kind::kUsed, Where::kCompletions},
    {"best_of"},
    {"tools", Kind::kUsed, Where::kChat},
    {"tool_choice", Kind::kUsed, Where::kChat},
    {"chat_template_kwargs", Kind::kUsed, Where::kChat},
    {"add_generation_prompt", Kind::kUsed, Where::kChat},
    {"reasoning_effort", Kind::kUsed, Where::kChat},
    {"stream"},

    {"model", Kind::kIgnored},
    {"user", Kind::kIgnored},
    {"metadata", Kind::kIgnored},
    {"stream_options", Kind::kIgnored},
    {"store", Kind::kIgnored},
    {"service_tier", Kind::kIgnored},
    {"safety_identifier", Kind::kIgnored},
    {"prompt_cache_key", Kind::kIgnored},
    {"prompt_cache_retention", Kind::kIgnored},
    {"parallel_tool_calls", Kind::kIgnored, Where::kChat},
    {"priority", Kind::kIgnored},
    {"request_id", Kind::kIgnored},
    {"cache_salt", Kind::kIgnored},
    {"guided_decoding_backend", Kind::kIgnored},
    {"include_reasoning", Kind::kIgnored, Where::kChat},

    {"length_penalty", Kind::kNeutral, Where::kBoth, "[1]"},
    {"early_stopping", Kind::kNeutral, Where::kBoth, "[false]"},
    {"use_beam_search", Kind::kNeutral, Where::kBoth, "[false]"},
    {"suffix", Kind::kNeutral, Where::kCompletions, "[\"\"]"},
    {"skip_special_tokens", Kind::kNeutral, Where::kBoth, "[true]"},
    {"spaces_between_special_tokens", Kind::kNeutral, Where::kBoth, "[true]"},
    {"include_stop_str_in_output", Kind::kNeutral, Where::kBoth, "[false]"},
    {"add_special_tokens", Kind::kNeutral, Where::kCompletions, "[true]"},
    {"add_special_tokens", Kind::kNeutral, Where::kChat, "[false]"},
    {"truncate_prompt_tokens", Kind::kNeutral, Where::kBoth},
    {"prompt_logprobs", Kind::kNeutral, Where::kBoth},
    {"allowed_token_ids", Kind::kNeutral, Where::kBoth},
    {"bad_words", Kind::kNeutral, Where::kBoth, "[[]]"},
    {"logits_processors", Kind::kNeutral, Where::kBoth, "[[]]"},
    {"guided_grammar", Kind::kNeutral},
    {"guided_whitespace_pattern", Kind::kNeutral},
    {"structural_tag", Kind::kNeutral},
    {"kv_transfer_params", Kind::kNeutral},
    {"vllm_xargs", Kind::kNeutral, Where::kBoth, "[{}]"},
    {"return_tokens_as_token_ids", Kind::kNeutral, Where::kBoth, "[false]"},
    {"return_token_ids", Kind::kNeutral, Where::kBoth, "[false]"},
    {"echo", Kind::kNeutral, Where::kChat, "[false]"},
    {"continue_final_message", Kind::kNeutral, Where::kChat, "[false]"},
    {"chat_template", Kind::kNeutral, Where::kChat},
    {"functions", Kind::kNeutral, Where::kChat, "[[]]"},
    {"function_call", Kind::kNeutral, Where::kChat, R"(["none","auto"])"},
    {"modalities", Kind::kNeutral, Where::kChat, R"([["text"]])"},
    {"audio", Kind::kNeutral, Where::kChat},
    {"prediction", Kind::kNeutral, Where::kChat},
    {"web_search_options", Kind::kNeutral, Where::kChat},
    {"verbosity", Kind::kNeutral, Where::kChat, R"(["medium"])"},
    {"mm_processor_kwargs", Kind::kNeutral, Where::kChat, "[{}]"},
    {"media_io_kwargs", Kind::kNeutral, Where::kChat, "[{}]"}};

bool belongs(const Field& field, Endpoint endpoint) {
  return field.where == Where::kBoth ||
         (field.where == Where::kChat) == (endpoint == Endpoint::kChat);
}

const Field* find_field(std::string_view name, Endpoint endpoint) {
  const auto* at = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& field) {
    return field.name == name && belongs(field, endpoint);
  });
  return at == std::end(kFields) ? nullptr : at;
}

std::string_view url_of(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "/v1/chat/completions" : "/v1/completions";
}

// 0 and 0.0 are the same.
bool same_value(const Json& a, const Json& b) {
  const auto number = [](const Json& json) -> const double* {
    return std::get_if<double>(&json.value());
  };
  const auto* whole = std::get_if<std::int64_t>(&b.value());
  if (number(a) != nullptr && whole != nullptr) return *number(a) == static_cast<double>(*whole);
  return to_text(a) == to_text(b);
}

void check_neutral(const JsonField& value, const Field& field) {
  const Json neutral = parse_json(field.neutral, "neutral values");
  const auto& values = std::get<JsonArray>(neutral.value());
  std::vector<std::string> texts = {"null"};
  for (const Json& good : values) {
    if (same_value(value.json(), good)) return;
    texts.push_back(to_text(good));
  }
  value.fail(
      fmt::format("is not supported; accepted without effect is {}", fmt::join(texts, " or ")));
}

[[noreturn]] void refuse_unknown(const JsonField& body, std::string_view name, Endpoint endpoint) {
  const Endpoint other = endpoint == Endpoint::kChat ? Endpoint::kCompletions : Endpoint::kChat;
  if (find_field(name, other) != nullptr) {
    body.fail(
        fmt::format("\"{}\" is a field of {}, not of {}", name, url_of(other), url_of(endpoint)));
  }
  std::vector<std::string_view> known;
  for (const Field& field : kFields) {
    if (belongs(field, endpoint)) known.push_back(field.name);
  }
  if (const std::string nearest = nearly(name, known); !nearest.empty())
    body.fail(fmt::format("unknown field \"{}\"; did you mean \"{}\"?", name, nearest));
  body.fail(
      fmt::format("unknown field \"{}\"; accepted are {}", name, accepted_body_fields(endpoint)));
}

}  // namespace

void check_fields(const JsonField& body, Endpoint endpoint) {
  for (const auto& [name, value] : std::get<JsonObject>(body.json().value())) {
    if (value.is_null()) continue;  // asks for nothing
    const Field* field = find_field(name, endpoint);
    if (field == nullptr) {
      refuse_unknown(body, name.size() > 100 ? std::string_view(name).substr(0, 100) : name,
                     endpoint);
    }
    if (field->kind == Kind::kNeutral) check_neutral(body.at(name), *field);
  }
}

std::string accepted_body_fields(Endpoint endpoint) {
  std::vector<std::string_view> used;
  std::vector<std::string_view> ignored;
  for (const Field& field : kFields) {
    if (!belongs(field, endpoint)) continue;
    if (field.kind == Kind::kUsed) used.push_back(field.name);
    if (field.kind == Kind::kIgnored) ignored.push_back(field.name);
  }
  return fmt::format("{} (and without effect {})", fmt::join(used, ", "), fmt::join(ignored, ", "));
}

}  // namespace longhaul
