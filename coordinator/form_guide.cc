#include "coordinator/form_guide.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul {

FormGuide::FormGuide(std::shared_ptr<forms::Form> form, const Tokenizer& tokenizer,
                     std::vector<std::int32_t> end_tokens)
    : cursor_(std::move(form)), tokenizer_(&tokenizer), end_tokens_(std::move(end_tokens)) {}

AllowedTokens FormGuide::allowed() {
  AllowedTokens text = cursor_.allowed();
  if (cursor_.may_end()) {
    IdSet with_end = *text;
    for (const std::int32_t id : end_tokens_) {
      if (id >= 0 && id < with_end.size()) with_end.insert(id);
    }
    text = std::make_shared<const IdSet>(std::move(with_end));
  }
  if (text->count() == 0) {
    throw Error(ErrorCode::kUnsupported,
                "no token of the model's vocabulary goes on with the given form");
  }
  return text;
}

void FormGuide::add(std::int32_t token) {
  if (cursor_.advance(tokenizer_->token_bytes(token))) return;
  throw Error(ErrorCode::kInternal,
              fmt::format("token {} was picked, which the given form does not allow", token));
}

FormGuide FormLibrary::guide(const FormSpec& spec, std::vector<std::int32_t> end_tokens) {
  return {form(spec), *tokenizer_, std::move(end_tokens)};
}

std::shared_ptr<forms::Form> FormLibrary::form(const FormSpec& spec) {
  std::erase_if(forms_, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [source, known] : forms_) {
    if (source == spec.source) return known.lock();
  }
  if (trie_ == nullptr) {
    trie_ = std::make_shared<const forms::TokenTrie>(bytes_of_tokens(*tokenizer_, spec.vocab_size));
  }
  auto form = std::make_shared<forms::Form>(spec.source, trie_);
  forms_.emplace_back(spec.source, form);
  return form;
}

std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::vector<std::string> bytes(static_cast<std::size_t>(vocab_size));
  for (std::int32_t id = 0; id < std::min(vocab_size, tokenizer.vocab_size()); ++id) {
    if (tokenizer.has_text(id)) bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
  }
  return bytes;
}

}  // namespace longhaul
