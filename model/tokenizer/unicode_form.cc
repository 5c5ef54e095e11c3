// Unicode normal forms through ICU, limited to the characters of Unicode 9 and fed in blocks, since
// ICU counts in 32 bits. ASCII runs, most of most texts, are copied untouched.
#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kMaxBlock = std::size_t{64} << 20;

void check(UErrorCode code, std::string_view what) {
  if (U_FAILURE(code))
    throw Error(ErrorCode::kInternal, fmt::format("ICU: {}: {}", what, u_errorName(code)));
}

const icu::UnicodeSet& known_characters() {
  static const std::unique_ptr<const icu::UnicodeSet> kSet = [] {
    UErrorCode code = U_ZERO_ERROR;
    auto set = std::make_unique<icu::UnicodeSet>(UNICODE_STRING_SIMPLE("[:age=9.0:]"), code);
    check(code, "the characters of Unicode 9");
    set->freeze();
    return set;
  }();
  return *kSet;
}

using Getter = const icu::Normalizer2* (*)(UErrorCode&);

std::unique_ptr<const icu::FilteredNormalizer2> make_form(Getter get) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* full = get(code);
  check(code, "Unicode normalization");
  return std::make_unique<const icu::FilteredNormalizer2>(*full, known_characters());
}

const icu::Normalizer2& normalizer_of(UnicodeForm form) {
  static const auto kNfc = make_form(icu::Normalizer2::getNFCInstance);
  static const auto kNfd = make_form(icu::Normalizer2::getNFDInstance);
  static const auto kNfkc = make_form(icu::Normalizer2::getNFKCInstance);
  static const auto kNfkd = make_form(icu::Normalizer2::getNFKDInstance);
  switch (form) {
    case UnicodeForm::kNfc:
      return *kNfc;
    case UnicodeForm::kNfd:
      return *kNfd;
    case UnicodeForm::kNfkc:
      return *kNfkc;
    case UnicodeForm::kNfkd:
      return *kNfkd;
  }
  throw Error(ErrorCode::kInternal, "no such normal form");
}

void append_form(const icu::Normalizer2& form, std::string_view text, std::string& out) {
  UErrorCode code = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&out);
  form.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())), sink,
                     nullptr, code);
  check(code, "Unicode normalization");
}

bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

// The end of the ASCII run at `at`, less its last character when something else follows: a mark may
// combine with it.
std::size_t plain_end(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_ascii(text[end])) ++end;
  return end == text.size() || end == at ? end : end - 1;
}

// The end of what starts with a character that may combine: the next ASCII run of two or more, for
// nothing composes across the start of an ASCII character.
std::size_t combining_end(std::string_view text, std::size_t at) {
  std::size_t end = at + char_length(text[at]);
  while (end < text.size() &&
         !(is_ascii(text[end]) && (end + 1 == text.size() || is_ascii(text[end + 1])))) {
    // A document without two ASCII characters in a row: any one of them will do.
    if (end - at > kMaxBlock && is_ascii(text[end])) break;
    end += char_length(text[end]);
  }
  return end;
}

}  // namespace

std::string to_form(UnicodeForm form, std::string_view text) {
  const icu::Normalizer2& normalizer = normalizer_of(form);
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t plain = plain_end(text, at);
    out.append(text.substr(at, plain - at));
    at = plain;
    if (at == text.size()) break;
    const std::size_t end = combining_end(text, at);
    std::string_view part = text.substr(at, end - at);
    while (part.size() > kMaxBlock) {  // no ASCII at all: cut where the form allows it
      std::size_t cut = kMaxBlock;
      while (is_continuation(part[cut])) --cut;
      while (cut > 0 && !normalizer.hasBoundaryBefore(static_cast<UChar32>(char_at(part, cut))))
        cut = last_char(part.substr(0, cut));
      if (cut == 0) break;
      append_form(normalizer, part.substr(0, cut), out);
      part.remove_prefix(cut);
    }
    if (part.size() > static_cast<std::size_t>(INT32_MAX) / 2)
      throw Error(ErrorCode::kUnsupported, "over a gigabyte of text without a place to normalize");
    append_form(normalizer, part, out);
    at = end;
  }
  return out;
}

}  // namespace longhaul::tokenization
