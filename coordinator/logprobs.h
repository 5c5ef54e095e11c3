// Log-probabilities in the form of /v1/completions: parallel lists `tokens`, `token_logprobs`,
// `top_logprobs`, `text_offset`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

// A token as these lists write it: its text; "bytes:\xe2\x80" when it is a part of a character;
// "token_id:151700", as vLLM writes ids, of those that the tokenizer does not have: models often
// have more rows than it has tokens.
std::string logprob_text(const Tokenizer& tokenizer, std::int32_t token);

// Unicode characters of UTF-8 text: the unit of text_offset.
std::int64_t count_characters(std::string_view text);

class LogprobList {
 public:
  // A token with its score, beginning at character `offset` of the choice's text.
  void add(const PickedToken& token, std::int64_t offset);
  // A token that nothing stands before: its score is null.
  void add_unscored(std::int32_t token, std::int64_t offset);
  // Removes the tokens from `first_index` on that begin at or after `offset`.
  void cut(std::size_t first_index, std::int64_t offset);
  std::size_t size() const { return entries_.size(); }
  Json to_json(const Tokenizer& tokenizer) const;
  // In the form of /v1/chat/completions: {"content": [{"token", "logprob", "bytes",
  // "top_logprobs"}]}.
  Json to_chat_json(const Tokenizer& tokenizer) const;

 private:
  struct Entry {
    PickedToken token;
    bool scored = true;
    std::int64_t offset = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace longhaul
