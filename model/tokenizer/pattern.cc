#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "model/tokenizer/pattern_syntax.h"
#include "model/tokenizer/utf8.h"

namespace longhaul::tokenization {
namespace {

constexpr std::size_t kJitStackStart = std::size_t{32} << 10;
constexpr std::size_t kJitStackMax = std::size_t{64} << 20;
constexpr std::uint32_t kMinSteps = 10'000'000;  // PCRE2's own default

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof text) < 0) return fmt::format("error {}", error);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string source;  // file and field, for errors while matching
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Pattern Pattern::regex(std::string_view expression, const JsonField& field) {
  const std::string translated = to_pcre2(expression, field);
  auto code = std::make_shared<Code>();
  code->source = field.path();
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C,
      &error, &offset, context.get());
  if (code->code == nullptr) {
    field.fail(fmt::format("not a regular expression ({}): {}", message_of(error), expression));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  Pattern pattern;
  pattern.text_ = expression;
  pattern.code_ = std::move(code);
  return pattern;
}

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

Pattern Pattern::from_json(const JsonField& field) {
  if (const auto expression = field.find("Regex"))
    return regex(expression->as_string(), *expression);
  const JsonField text = field.at("String");
  if (text.as_string().empty()) text.fail("expected a string that is not empty");
  return literal(text.as_string());
}

struct Matcher::Scratch {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Matcher::Matcher(const Pattern& pattern) : pattern_(&pattern) {
  if (pattern.is_literal()) return;
  scratch_ = std::make_unique<Scratch>();
  scratch_->data = pcre2_match_data_create(1, nullptr);
  scratch_->context = pcre2_match_context_create(nullptr);
  scratch_->stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
  if (scratch_->data == nullptr || scratch_->context == nullptr || scratch_->stack == nullptr) {
    throw std::bad_alloc();
  }
  pcre2_jit_stack_assign(scratch_->context, nullptr, scratch_->stack);
}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;

std::optional<Match> Matcher::find(std::string_view subject, std::size_t from, std::size_t limit) {
  if (from > subject.size() || from >= limit) return std::nullopt;
  if (pattern_->is_literal()) {
    const std::string& text = pattern_->text_;
    const std::size_t at =
        subject
            .substr(0,
                    limit > subject.size() - text.size() ? subject.size() : limit + text.size() - 1)
            .find(text, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Match{at, at + text.size()};
  }
  const Pattern::Code& code = *pattern_->code_;
  pcre2_set_offset_limit(scratch_->context, limit == kNoLimit ? PCRE2_UNSET : limit - 1);
  // A long run of spaces that is given back one by one takes a step each; more is a pattern gone
  // wild.
  const std::size_t steps = std::min<std::size_t>(UINT32_MAX, kMinSteps + 64 * subject.size());
  pcre2_set_match_limit(scratch_->context, static_cast<std::uint32_t>(steps));
  const auto text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  int rc = code.jit ? pcre2_jit_match(code.code, text, subject.size(), from, PCRE2_NO_UTF_CHECK,
                                      scratch_->data, scratch_->context)
                    : PCRE2_ERROR_JIT_STACKLIMIT;
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code.code, text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     scratch_->data, scratch_->context);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (rc < 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: the pattern cannot be searched for in this text ({}): {}",
                            code.source, message_of(rc), pattern_->text_));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->data);
  return Match{bounds[0], bounds[1]};
}

std::optional<Match> MatchWalk::next(std::size_t limit) {
  while (at_ <= subject_.size()) {
    const std::optional<Match> match = matcher_->find(subject_, at_, limit);
    if (!match) return std::nullopt;
    if (match->begin == match->end && match->end == last_end_) {
      at_ += at_ < subject_.size() ? char_length(subject_[at_]) : 1;
      continue;
    }
    at_ = last_end_ = match->end;
    return match;
  }
  return std::nullopt;
}

namespace {

std::string replace_literal(std::string_view what, std::string_view text,
                            std::string_view content) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = text.find(what, at);
    if (found == std::string_view::npos) {
      out.append(text, at, text.size() - at);
      break;
    }
    out.append(text, at, found - at);
    out.append(content);
    at = found + what.size();
  }
  return out;
}

}  // namespace

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content) {
  if (pattern.is_literal()) return replace_literal(pattern.text(), text, content);
  Matcher matcher(pattern);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::size_t done = 0;
  MatchWalk walk(matcher, text);
  while (const auto match = walk.next()) {
    out.append(text.substr(done, match->begin - done));
    out.append(content);
    done = match->end;
  }
  out.append(text.substr(done));
  return out;
}

}  // namespace longhaul::tokenization
