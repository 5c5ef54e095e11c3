#include "tools/identify/passkey_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "tools/eval/haystack.h"

namespace longhaul {
namespace {

constexpr std::array<std::string_view, 26> kWords = {
    "alpha",   "bravo", "charlie", "delta",  "echo",     "foxtrot", "golf",   "hotel",  "india",
    "juliett", "kilo",  "lima",    "mike",   "november", "oscar",   "papa",   "quebec", "romeo",
    "sierra",  "tango", "uniform", "victor", "whiskey",  "xray",    "yankee", "zulu"};
constexpr std::array<std::string_view, 20> kOrdinals = {
    "first",     "second",    "third",       "fourth",     "fifth",      "sixth",      "seventh",
    "eighth",    "ninth",     "tenth",       "eleventh",   "twelfth",    "thirteenth", "fourteenth",
    "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth"};
constexpr std::size_t kDepths = 1000;  // from 0.05 to 0.95

// A seed of its own for each step, whatever the other ones draw.
RandomDraws draws_of(std::uint64_t seed, std::uint64_t what, std::int64_t number) {
  RandomDraws first(seed * 2 + what);
  return RandomDraws(first.next() + static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15U);
}

}  // namespace

PasskeyTemplates templates_of(RecordForm form) {
  if (form == RecordForm::kWords) {
    return {.start = " This is a very long story book: <book> ",
            .end = " </book>.\\n\\n",
            .record =
                "Remember this sequence of words, it's the {key} passkey to the vault: "
                "{value}",
            .question =
                "Based on the content of the book, what is the {key} passkey to the "
                "vault?\\nPasskey: ",
            .answer = "{value}",
            .separator = "\\n\\n"};
  }
  return {.start = "",
          .end = "",
          .record = " The access code of {key} is {value}.",
          .question = "\\nQuestion: What is the access code of {key}?\\nAnswer:",
          .answer = " {value}.",
          .separator = ""};
}

PasskeyTexts::PasskeyTexts(const PasskeyConfig& config, std::vector<std::int32_t> start,
                           std::vector<std::int32_t> hay, Encode encode)
    : config_(config), start_(std::move(start)), hay_(std::move(hay)), encode_(std::move(encode)) {
  require(config.n_records >= 1 && config.n_words >= 1 && config.n_lengths >= 1,
          "texts for training: records, words and lengths are counted from 1");
  require(
      config.form == RecordForm::kCodes ||
          config.n_records <= static_cast<std::int64_t>(kOrdinals.size()),
      fmt::format("{} records: ordinals are known up to {}", config.n_records, kOrdinals.size()));
  require(1 <= config.shortest && config.shortest <= config.longest,
          fmt::format("texts from {} to {} tokens", config.shortest, config.longest));
  const auto text = encode_(fill_template(config.templates.start, {}));
  start_.insert(start_.end(), text.begin(), text.end());
  const auto most = config.longest - static_cast<std::int64_t>(start_.size());
  require(static_cast<std::int64_t>(hay_.size()) >= most,
          fmt::format("the text that records are hidden in has {} tokens; texts of {} tokens need "
                      "{}: give a longer one, or a smaller --max-length",
                      hay_.size(), config.longest, most));
}

std::vector<NeedleRecord> PasskeyTexts::records_of(std::uint64_t draw) const {
  RandomDraws draws(draw);
  const auto count = static_cast<std::size_t>(config_.n_records);
  if (config_.form == RecordForm::kCodes)
    return make_records(draws, count, config_.n_digits, NameWords::kNeverShared);
  std::vector<NeedleRecord> records;
  for (std::size_t i = 0; i < count; ++i) {
    std::string value;
    for (std::int64_t word = 0; word < config_.n_words; ++word) {
      if (word > 0) value += ' ';
      value += kWords[draws.below(kWords.size())];
    }
    records.push_back({.key = std::string(kOrdinals[i]), .value = value});
  }
  return records;
}

std::int64_t PasskeyTexts::length_at(std::int64_t step) const {
  const std::int64_t n = config_.n_lengths;
  const auto order = draws_of(config_.seed, 0, step / n)
                         .sample(static_cast<std::size_t>(n), static_cast<std::size_t>(n));
  const auto which = static_cast<std::int64_t>(order[static_cast<std::size_t>(step % n)]);
  return n == 1 ? config_.longest
                : config_.shortest + (config_.longest - config_.shortest) * which / (n - 1);
}

PasskeyText PasskeyTexts::at(std::int64_t step) const {
  RandomDraws draws = draws_of(config_.seed, 1, step);
  const std::vector<NeedleRecord> records = records_of(draws.next());
  const PasskeyTemplates& templates = config_.templates;
  std::vector<std::size_t> places = draws.sample(kDepths, records.size());
  std::sort(places.begin(), places.end());
  std::vector<PlacedNeedle> needles;
  std::string tail = fill_template(templates.end, {});
  const std::vector<std::int32_t> end = encode_(tail);
  std::vector<std::int32_t> answers;
  for (std::size_t i = 0; i < records.size(); ++i) {
    needles.push_back(
        {.depth = 0.05 + 0.9 * static_cast<double>(places[i]) / static_cast<double>(kDepths - 1),
         .tokens = encode_(fill_template(templates.record, records[i]))});
    const auto asked = encode_(
        fill_template(templates.question + templates.answer + templates.separator, records[i]));
    answers.insert(answers.end(), asked.begin(), asked.end());
  }
  const auto n_tail = static_cast<std::int64_t>(end.size() + answers.size());
  auto length = length_at(step) + static_cast<std::int64_t>(start_.size()) + n_tail;
  for (const PlacedNeedle& needle : needles)
    length += static_cast<std::int64_t>(needle.tokens.size());
  length = std::min(length, config_.longest);
  PasskeyText text;
  text.n_answer = static_cast<std::int64_t>(answers.size());
  require(text.n_answer > 0, "texts for training: questions and answers are empty");
  text.tokens = make_haystack({.start = start_,
                               .hay = hay_,
                               .needles = needles,
                               .length = std::max<std::int64_t>(0, length - n_tail)})
                    .tokens;
  text.tokens.insert(text.tokens.end(), end.begin(), end.end());
  text.tokens.insert(text.tokens.end(), answers.begin(), answers.end());
  return text;
}

void PasskeyTexts::check(std::int64_t n_steps) const {
  for (std::int64_t step = 0; step < n_steps; ++step) {
    try {
      at(step);
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("texts of at most {} tokens have no room for {} records and the "
                              "questions about them: {}; give a larger --max-length or fewer "
                              "--records",
                              config_.longest, config_.n_records, error.what()));
    }
  }
}

}  // namespace longhaul
