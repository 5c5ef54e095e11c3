// Leads answers through their given forms: which tokens may come next, and when an answer is
// complete. It lives beside the scheduler and not in the ranks, because here the tokens become
// text: so it is one for any number of ranks, which need to know nothing of vocabularies and get
// finished sets of tokens with each step.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/wire/step.h"
#include "model/forms/form.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

// A form as a request wants it.
struct FormSpec {
  forms::FormSource source;
  std::int64_t vocab_size = 0;  // of the model; tokens from here on are never allowed
};

// One answer's way through its form. One thread, that of the forms.
class FormGuide {
 public:
  // Any of `end_tokens` may come where the answer may end. The tokenizer must outlive it.
  FormGuide(std::shared_ptr<forms::Form> form, const Tokenizer& tokenizer,
            std::vector<std::int32_t> end_tokens);

  // Of the next token; special tokens are never in it, but for end tokens where the answer may end.
  // Throws kUnsupported when no token of the vocabulary goes on with the form.
  AllowedTokens allowed();
  // The form is complete and nothing may follow.
  bool must_end() { return cursor_.must_end(); }
  // Goes on with a token that was allowed.
  void add(std::int32_t token);

 private:
  forms::FormCursor cursor_;
  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> end_tokens_;
};

// The forms in use, each compiled once however many requests have it. One thread.
class FormLibrary {
 public:
  // The tokenizer must outlive it.
  explicit FormLibrary(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  FormGuide guide(const FormSpec& spec, std::vector<std::int32_t> end_tokens);

 private:
  std::shared_ptr<forms::Form> form(const FormSpec& spec);

  const Tokenizer* tokenizer_;
  std::shared_ptr<const forms::TokenTrie> trie_;  // made with the first form
  std::vector<std::pair<forms::FormSource, std::weak_ptr<forms::Form>>> forms_;
};

// What each token adds to a text, by id; empty for special tokens and for ids without a token.
std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, std::int64_t vocab_size);

}  // namespace longhaul
