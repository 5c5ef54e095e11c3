// What tokenizer.json's `normalizer` does to a text before it is split: Prepend, Replace, Strip,
// NFC, NFD, NFKC, NFKD and sequences of them.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/pattern.h"

namespace longhaul::tokenization {

struct Prepend {
  std::string text;
};
struct Replace {
  Pattern pattern;
  std::string content;
};
struct Strip {
  bool left = true;
  bool right = true;
};
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct Normalized {
  std::string text;
  // The first character does not stand for the first one of the original text (Metaspace's
  // "first" asks).
  bool front_removed = false;
};

class Normalizer {
 public:
  static Normalizer from_json(const JsonField& field);
  bool is_identity() const { return steps_.empty(); }
  // `text` is valid UTF-8.
  Normalized apply(std::string_view text) const;

 private:
  using Step = std::variant<Prepend, Replace, Strip, UnicodeForm>;
  void add(const JsonField& field);
  void add_replace(const JsonField& field);
  std::vector<Step> steps_;
  double growth_ = 1;  // how many times as long its replacements can make a text
};

// The Unicode normal form of `text` as of Unicode 9, whose tables the `tokenizers` library carries;
// newer characters stay as they are. Throws kInternal when ICU lacks its data.
std::string to_form(UnicodeForm form, std::string_view text);

}  // namespace longhaul::tokenization
