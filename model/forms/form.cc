#include "model/forms/form.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/forms/json_grammar.h"
#include "model/forms/json_schema.h"
#include "model/forms/mask_maker.h"
#include "model/forms/regex.h"

namespace longhaul::forms {
namespace {

// Of the form itself, and together with the states that are kept.
constexpr std::size_t kMaxOwnExpressions = 150'000;
constexpr std::size_t kMaxExpressions = 300'000;
constexpr std::size_t kMaxAutomatonBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxChoices = 100'000;

ExpressionId choice(Expressions& expressions, const std::string& text) {
  const Json json = parse_json(text, "guided_choice");
  const JsonField list(json, "guided_choice");
  if (list.size() == 0 || list.size() > kMaxChoices) {
    list.fail(fmt::format("{} choices; expected 1 to {}", list.size(), kMaxChoices));
  }
  std::vector<ExpressionId> ways;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string& word = list.at(i).as_string();
    if (word.empty()) list.at(i).fail("an empty choice");
    ways.push_back(expressions.literal(word));
  }
  return expressions.either(std::move(ways));
}

ExpressionId language(Expressions& expressions, const FormSource& source) {
  switch (source.kind) {
    case FormKind::kJsonObject:
      return JsonGrammar(expressions).any_object();
    case FormKind::kJsonSchema:
      return parse_json_schema(expressions, source.text);
    case FormKind::kRegex:
      return parse_regex(expressions, source.text, Spelling::kUtf8, RegexMatch::kWhole);
    case FormKind::kChoice:
      return choice(expressions, source.text);
  }
  throw Error(ErrorCode::kInternal, "a form of no kind");
}

// Recursion is given its levels here.
ExpressionId compiled(Expressions& expressions, const FormSource& source) {
  try {
    const ExpressionId open = language(expressions, source);
    expressions.find_fewest_levels(kMaxLevels);
    const ExpressionId start = expressions.with_levels(open, kMaxLevels);
    if (start == kNothing) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the form allows no text at all (of at most {} levels of recursion)",
                              kMaxLevels));
    }
    if (expressions.size() > kMaxOwnExpressions) throw TooManyExpressions();
    return start;
  } catch (const TooManyExpressions&) {
    throw Error(ErrorCode::kUnsupported, "the form is too large");
  }
}

}  // namespace

void check_form(const FormSource& source) {
  Expressions expressions(kMaxOwnExpressions);
  compiled(expressions, source);
}

struct Form::State {
  State(std::unique_ptr<Expressions> expressions, ExpressionId first,
        std::shared_ptr<const TokenTrie> trie)
      : automaton(std::move(expressions)), masks(std::move(trie), automaton), start(first) {}

  void reset() {
    masks.forget();
    automaton.reset();
    ++n_resets;
  }

  Automaton automaton;
  MaskMaker masks;
  ExpressionId start;
  std::int64_t n_resets = 0;
};

Form::Form(const FormSource& source, std::shared_ptr<const TokenTrie> trie) {
  auto expressions = std::make_unique<Expressions>(kMaxExpressions);
  const ExpressionId start = compiled(*expressions, source);
  state_ = std::make_unique<State>(std::move(expressions), start, std::move(trie));
}

Form::~Form() = default;

FormCursor::FormCursor(std::shared_ptr<Form> form)
    : form_(std::move(form)), state_(form_->state_->start), n_resets_(form_->state_->n_resets) {}

void FormCursor::find_state() {
  Form::State& form = *form_->state_;
  if (n_resets_ == form.n_resets) return;
  state_ = form.automaton.step(form.start, text_);
  n_resets_ = form.n_resets;
}

// When the automaton is full, it starts anew; so whether there is room for a step does not depend
// on what was read before.
template <typename Work>
auto FormCursor::with_room(const Work& work) {
  Form::State& form = *form_->state_;
  if (form.automaton.bytes_used() > kMaxAutomatonBytes) form.reset();
  while (true) {
    const bool is_fresh = form.automaton.is_fresh();
    try {
      find_state();
      return work(form);
    } catch (const TooManyExpressions&) {
      form.reset();
      if (is_fresh) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("the answer's form needs an automaton of more than {} expressions "
                                "after {} bytes; use a simpler form",
                                kMaxExpressions, text_.size()));
      }
    }
  }
}

std::shared_ptr<const IdSet> FormCursor::allowed() {
  return with_room([&](Form::State& form) { return form.masks.mask(state_); });
}

bool FormCursor::may_end() {
  return with_room([&](Form::State& form) { return form.automaton.is_nullable(state_); });
}

bool FormCursor::must_end() {
  return with_room([&](Form::State&) { return state_ == kEmpty; });
}

bool FormCursor::advance(std::string_view bytes) {
  return with_room([&](Form::State& form) {
    const ExpressionId to = form.automaton.step(state_, bytes);
    if (to == kNothing) return false;
    state_ = to;
    text_ += bytes;
    return true;
  });
}

}  // namespace longhaul::forms
