// Answers questions about forms, one JSON object a line, for check_forms.py:
//   {"kind": "regex", "text": "a+", "words": ["a", ""]}      -> {"has": [true, false]}
//   {"kind": "schema", "text": "{...}", "samples": 9, "seed": 1} -> {"samples": ["...", ...]}
// and {"error": "..."} for a form that is refused. Samples are drawn byte by byte from what the
// form allows; those that do not end within 20,000 bytes are left out.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/random.h"
#include "tests/unit/forms/words.h"

namespace longhaul::test {
namespace {

constexpr std::size_t kMaxBytes = 20'000;
constexpr std::string_view kEnds = "\"]},";  // drawn more often, so that samples end

JsonArray has_words(const JsonField& question, const Words& words) {
  JsonArray result;
  const JsonField list = question.at("words");
  for (std::size_t i = 0; i < list.size(); ++i) {
    result.push_back(words.has(list.at(i).as_string()));
  }
  return result;
}

std::string sample(const Words& words, Random& random) {
  std::string text;
  for (forms::FormCursor cursor = words.cursor(); text.size() < kMaxBytes;) {
    if (cursor.must_end() || (cursor.may_end() && random.chance(0.3))) return text;
    const auto mask = cursor.allowed();
    std::vector<std::int64_t> bytes;
    mask->for_each([&](std::int64_t byte) { bytes.push_back(byte); });
    auto byte = bytes[static_cast<std::size_t>(
        random.integer(0, static_cast<std::int64_t>(bytes.size()) - 1))];
    for (const char end : kEnds) {
      if (mask->contains(end) && random.chance(0.2)) byte = end;
    }
    text += static_cast<char>(byte);
    cursor.advance(std::string_view(text).substr(text.size() - 1));
  }
  return {};
}

Json answer(const JsonField& question) {
  const bool is_regex = question.at("kind").as_string() == "regex";
  const Words words({is_regex ? forms::FormKind::kRegex : forms::FormKind::kJsonSchema,
                     question.at("text").as_string()});
  if (const auto list = question.find("words")) {
    return JsonObject{{"has", has_words(question, words)}};
  }
  Random random(static_cast<std::uint64_t>(question.at("seed").as_integer(0, 1 << 30)));
  JsonArray samples;
  for (std::int64_t i = question.at("samples").as_integer(0, 10'000); i > 0; --i) {
    std::string text = sample(words, random);
    if (!text.empty()) samples.push_back(std::move(text));
  }
  return JsonObject{{"samples", std::move(samples)}};
}

}  // namespace
}  // namespace longhaul::test

int main() {
  using namespace longhaul;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const Json question = parse_json(line, "question");
      std::cout << to_text(test::answer(JsonField(question, "question"))) << std::endl;
    } catch (const Error& error) {
      std::cout << to_text(JsonObject{{"error", error.what()}}) << std::endl;
    }
  }
}
