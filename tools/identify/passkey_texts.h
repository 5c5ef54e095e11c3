// The texts that gates are trained on: records hidden in a long text, and at its end the questions
// about all of them with their answers, which are what is compared (Xiao et al. 2024, arXiv
// 2410.10819, section 2.2; the published code's data.py:100-270). Pure: the same seed gives the
// same texts.
//
// Published are 10 records of 32 words, asked for by their ordinals; 50 lengths at even distances,
// in another random order every 50 steps; and depths drawn from 1000 between 0.05 and 0.95. A
// length is that of the text around the records, less what the longest whole text allows. All
// templates can be given.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/needle_text.h"

namespace longhaul {

enum class RecordForm {
  kWords,  // "the third passkey": 32 words of the NATO alphabet
  kCodes,  // "amber falcon": a number
};

struct PasskeyTemplates {
  std::string start;      // in front of the text
  std::string end;        // behind it
  std::string record;     // {key} and {value} are filled in
  std::string question;   // {key}
  std::string answer;     // {value}
  std::string separator;  // behind each answer
};
PasskeyTemplates templates_of(RecordForm form);

struct PasskeyConfig {
  RecordForm form = RecordForm::kWords;
  PasskeyTemplates templates = templates_of(RecordForm::kWords);
  std::int64_t n_records = 10;
  std::int64_t n_words = 32;     // of a value of words
  int n_digits = 6;              // of a value that is a number
  std::int64_t shortest = 1000;  // tokens around the records
  std::int64_t longest = 32000;  // the same, and at most of a whole text
  std::int64_t n_lengths = 50;
  std::uint64_t seed = 42;
};

struct PasskeyText {
  std::vector<std::int32_t> tokens;
  std::int64_t n_answer = 0;  // the last tokens: questions and answers
};

using Encode = std::function<std::vector<std::int32_t>(std::string_view)>;

// Immutable once made.
class PasskeyTexts {
 public:
  // `start` stands in front of every text (<s> and such), `hay` is what records are hidden in.
  // Throws kInvalidArgument for settings that make no sense, and when `hay` is shorter than the
  // longest text needs.
  PasskeyTexts(const PasskeyConfig& config, std::vector<std::int32_t> start,
               std::vector<std::int32_t> hay, Encode encode);

  // The text of a training step, from 0. Throws kInvalidArgument when its records do not fit.
  PasskeyText at(std::int64_t step) const;
  // Tokens around its records, without making it.
  std::int64_t length_at(std::int64_t step) const;
  // Makes every text of so many steps, so that one that cannot be made is found before the start.
  void check(std::int64_t n_steps) const;

 private:
  std::vector<NeedleRecord> records_of(std::uint64_t draw) const;

  PasskeyConfig config_;
  std::vector<std::int32_t> start_;
  std::vector<std::int32_t> hay_;
  Encode encode_;
};

}  // namespace longhaul
