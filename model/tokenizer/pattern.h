// The patterns of tokenizer.json: a literal string, or a regular expression in the syntax of the
// `tokenizers` library (Oniguruma, Ruby syntax), run by PCRE2.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul::tokenization {

struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

inline constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

// Immutable; shared by threads. Copies share the compiled code.
class Pattern {
 public:
  // `field` is where the expression stands, for errors: kCorruptData when it is malformed,
  // kUnsupported when it uses what is not translated exactly.
  static Pattern regex(std::string_view expression, const JsonField& field);
  static Pattern literal(std::string text);
  // {"Regex": "..."} or {"String": "..."}.
  static Pattern from_json(const JsonField& field);

  bool is_literal() const { return code_ == nullptr; }
  const std::string& text() const { return text_; }  // as written

 private:
  friend class Matcher;
  struct Code;
  std::string text_;
  std::shared_ptr<const Code> code_;
};

// The search for matches of one pattern. One thread; the pattern must outlive it.
class Matcher {
 public:
  explicit Matcher(const Pattern& pattern);
  ~Matcher();
  Matcher(Matcher&&) noexcept;

  // The first match that starts in [from, limit) of `subject`, which is valid UTF-8; text outside
  // is seen by lookarounds.
  std::optional<Match> find(std::string_view subject, std::size_t from,
                            std::size_t limit = kNoLimit);

 private:
  struct Scratch;
  const Pattern* pattern_;
  std::unique_ptr<Scratch> scratch_;
};

// All matches, from left to right, without overlap and without an empty match right behind another.
class MatchWalk {
 public:
  MatchWalk(Matcher& matcher, std::string_view subject, std::size_t from = 0)
      : matcher_(&matcher), subject_(subject), at_(from) {}
  std::optional<Match> next(std::size_t limit = kNoLimit);

 private:
  Matcher* matcher_;
  std::string_view subject_;
  std::size_t at_;
  std::size_t last_end_ = kNoLimit;  // no match yet
};

// `text` with every match replaced.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content);

}  // namespace longhaul::tokenization
