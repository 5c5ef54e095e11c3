#include "model/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/tokenizer/unsupported.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

void apply_step(const Prepend& step, Normalized& value) {
  if (!value.text.empty()) value.text.insert(0, step.text);
}

void apply_step(const Replace& step, Normalized& value) {
  if (step.content.empty()) {
    Matcher matcher(step.pattern);
    const auto first = matcher.find(value.text, 0);
    value.front_removed |= first && first->begin == 0 && first->end > 0;
  }
  value.text = replace_all(step.pattern, value.text, step.content);
}

void apply_step(const Strip& step, Normalized& value) {
  std::string_view text = value.text;
  if (step.left) {
    while (!text.empty() && is_space(char_at(text, 0))) {
      text.remove_prefix(char_length(text[0]));
      value.front_removed = true;
    }
  }
  if (step.right) {
    while (!text.empty() && is_space(char_at(text, last_char(text))))
      text = text.substr(0, last_char(text));
  }
  value.text = std::string(text);
}

void apply_step(const UnicodeForm& form, Normalized& value) {
  value.text = to_form(form, value.text);
}

}  // namespace

Normalizer Normalizer::from_json(const JsonField& field) {
  Normalizer normalizer;
  normalizer.add(field);
  return normalizer;
}

// A chain of them could make gigabytes of a line.
void Normalizer::add_replace(const JsonField& field) {
  constexpr double kMaxGrowth = 64;
  Replace step{Pattern::from_json(field.at("pattern")), field.at("content").as_string()};
  const std::size_t replaced = step.pattern.is_literal() ? step.pattern.text().size() : 1;
  growth_ *= std::max(1.0, static_cast<double>(step.content.size()) /
                               static_cast<double>(std::max(replaced, std::size_t{1})));
  if (growth_ > kMaxGrowth) {
    refuse(field.at("content"),
           fmt::format("with it a text can become {:.0f} times as long; supported are {:.0f} times",
                       growth_, kMaxGrowth));
  }
  steps_.emplace_back(std::move(step));
}

void Normalizer::add(const JsonField& field) {
  const std::string& type = field.at("type").as_string();
  if (type == "Sequence") {
    const JsonField list = field.at("normalizers");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{field.at("prepend").as_string()});
  } else if (type == "Replace") {
    add_replace(field);
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{field.at("strip_left").as_bool(), field.at("strip_right").as_bool()});
  } else if (type == "NFC") {
    steps_.emplace_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    steps_.emplace_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(UnicodeForm::kNfkd);
  } else {
    refuse(field.at("type"), fmt::format("the normalizer \"{}\" is not supported", type));
  }
}

Normalized Normalizer::apply(std::string_view text) const {
  Normalized value{std::string(text)};
  for (const Step& step : steps_)
    std::visit([&](const auto& known) { apply_step(known, value); }, step);
  return value;
}

}  // namespace longhaul::tokenization
