// A form that an answer must have, and how far an answer has come in it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/id_set.h"
#include "model/forms/token_trie.h"

namespace longhaul::forms {

enum class FormKind {
  kJsonObject,  // any JSON object
  kJsonSchema,  // a JSON value that a schema allows
  kRegex,       // a text that a regular expression matches from end to end
  kChoice,      // one of several texts
};

struct FormSource {
  FormKind kind = FormKind::kJsonObject;
  std::string text;  // the schema, the expression, a JSON list of strings; kJsonObject: empty
  bool operator==(const FormSource&) const = default;
};

// Throws what Form's constructor does.
void check_form(const FormSource& source);

// The language of a form with its automaton, which grows while it is used and is bounded: it
// forgets what it can find again. Everything it says depends on the form, the vocabulary and the
// text alone. Used by one thread.
class Form {
 public:
  // Throws kInvalidArgument, kCorruptData or kUnsupported naming the place and what is wrong:
  // syntax, a keyword that is not supported, a form without any text, one that is too large.
  Form(const FormSource& source, std::shared_ptr<const TokenTrie> trie);
  ~Form();
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;

 private:
  friend class FormCursor;
  struct State;
  std::unique_ptr<State> state_;
};

// One answer's place in a form. One thread, that of the form. Members throw kUnsupported when a
// single step needs a larger automaton than there may be.
class FormCursor {
 public:
  explicit FormCursor(std::shared_ptr<Form> form);

  // The tokens that may come next; never one without bytes. Empty when the answer must end.
  std::shared_ptr<const IdSet> allowed();
  bool may_end();   // the answer is complete
  bool must_end();  // ... and nothing may follow
  // Goes on with a token's bytes. False, and nothing changes, when they do not fit.
  bool advance(std::string_view bytes);

 private:
  template <typename Work>
  auto with_room(const Work& work);
  void find_state();

  std::shared_ptr<Form> form_;
  std::string text_;           // so far: what the state can be found from again
  std::int32_t state_ = 0;     // an expression of the form's automaton ...
  std::int64_t n_resets_ = 0;  // ... as it was after so many resets
};

}  // namespace longhaul::forms
