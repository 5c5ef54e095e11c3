#include "coordinator/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace longhaul {
namespace {

// The double that prints like the float: -0.3 and not -0.30000001192092896.
Json short_number(float value) {
  if (!std::isfinite(value)) return nullptr;
  const std::string text = fmt::format("{}", value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Strict enough to tell whole characters from parts: what decode() would not have to replace.
bool is_whole_utf8(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const std::size_t n = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || i + n > bytes.size()) return false;
    for (std::size_t k = 1; k < n; ++k) {
      if ((static_cast<unsigned char>(bytes[i + k]) & 0xC0) != 0x80) return false;
    }
    const auto second = n > 1 ? static_cast<unsigned char>(bytes[i + 1]) : 0;
    // Overlong forms, surrogates and what lies beyond U+10FFFF.
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
      return false;
    i += n;
  }
  return true;
}

}  // namespace

std::string logprob_text(const Tokenizer& tokenizer, std::int32_t token) {
  if (token >= tokenizer.vocab_size()) return fmt::format("token_id:{}", token);
  if (tokenizer.is_special(token)) return std::string(tokenizer.token_text(token));
  std::string bytes = tokenizer.token_bytes(token);
  if (is_whole_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void LogprobList::add(const PickedToken& token, std::int64_t offset) {
  entries_.push_back({token, true, offset});
}

void LogprobList::add_unscored(std::int32_t token, std::int64_t offset) {
  PickedToken unscored;
  unscored.token = token;
  entries_.push_back({std::move(unscored), false, offset});
}

void LogprobList::cut(std::size_t first_index, std::int64_t offset) {
  while (entries_.size() > first_index && entries_.back().offset >= offset) entries_.pop_back();
}

Json LogprobList::to_json(const Tokenizer& tokenizer) const {
  JsonArray tokens;
  JsonArray scores;
  JsonArray tops;
  JsonArray offsets;
  for (const Entry& entry : entries_) {
    const std::string text = logprob_text(tokenizer, entry.token.token);
    tokens.emplace_back(text);
    offsets.emplace_back(entry.offset);
    if (!entry.scored) {
      scores.emplace_back(nullptr);
      tops.emplace_back(nullptr);
      continue;
    }
    scores.emplace_back(short_number(entry.token.logprob));
    // Different ids may have the same text; the likeliest one stands for all of them.
    JsonObject top;
    const auto add = [&top](const std::string& name, float logprob) {
      const bool known = std::any_of(top.begin(), top.end(),
                                     [&](const auto& member) { return member.first == name; });
      if (!known) top.emplace_back(name, short_number(logprob));
    };
    for (const TokenLogprob& other : entry.token.top)
      add(logprob_text(tokenizer, other.token), other.logprob);
    add(text, entry.token.logprob);
    tops.emplace_back(std::move(top));
  }
  return JsonObject{{"tokens", std::move(tokens)},
                    {"token_logprobs", std::move(scores)},
                    {"top_logprobs", std::move(tops)},
                    {"text_offset", std::move(offsets)}};
}

namespace {

JsonObject chat_entry(const Tokenizer& tokenizer, std::int32_t token, float logprob) {
  JsonArray bytes;
  const bool is_known = token < tokenizer.vocab_size();
  const std::string raw = !is_known                     ? std::string()
                          : tokenizer.is_special(token) ? std::string(tokenizer.token_text(token))
                                                        : tokenizer.token_bytes(token);
  for (const char c : raw) bytes.emplace_back(std::int64_t{static_cast<unsigned char>(c)});
  return {{"token", logprob_text(tokenizer, token)},
          {"logprob", short_number(logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

Json LogprobList::to_chat_json(const Tokenizer& tokenizer) const {
  JsonArray content;
  for (const Entry& entry : entries_) {
    JsonObject shown = chat_entry(tokenizer, entry.token.token, entry.token.logprob);
    JsonArray top;
    for (const TokenLogprob& other : entry.token.top)
      top.emplace_back(chat_entry(tokenizer, other.token, other.logprob));
    shown.emplace_back("top_logprobs", std::move(top));
    content.emplace_back(std::move(shown));
  }
  return JsonObject{{"content", std::move(content)}};
}

}  // namespace longhaul
