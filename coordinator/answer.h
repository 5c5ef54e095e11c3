// One request's answer while it grows: tokens become text, stop strings and end tokens are found,
// log-probabilities are collected. Knows no files and no scheduler. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cluster/wire/step.h"
#include "coordinator/form_guide.h"
#include "coordinator/logprobs.h"
#include "coordinator/stop_matcher.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

struct AnswerSpec {
  std::vector<std::int32_t> prompt = {};   // as prefilled after the document, BOS included
  std::int64_t n_hidden = 0;               // of these, leading ones that belong to the document
  std::vector<std::int32_t> context = {};  // the last few tokens before the answer: they decide
                                           // whether it begins with a space
  std::string echo_text = {};              // the prompt as text; used with echo
  bool echo = false;
  std::int64_t n_logprobs = -1;
  std::int64_t max_tokens = 0;
  // Before so many tokens neither stop strings nor `not_before_min` end the answer (the latter are
  // not picked), as in vLLM; only a given form that is complete does.
  std::int64_t min_tokens = 0;
  std::vector<std::int32_t> not_before_min = {};
  std::int64_t vocab_size = 0;  // of the model, for min_tokens
  std::vector<std::string> stop = {};
  std::vector<std::int32_t> eos = {};  // any of these ends the answer and is no part of its text
  std::vector<std::int32_t> stop_tokens = {};  // so do these, and they are the stop_reason
  std::optional<FormSpec> form = {};           // that the answer must have
  std::vector<std::int32_t> form_ends = {};    // may be picked where the form may end, as ends

  // Whether Answer::allowed() may ever be anything but null.
  bool may_restrict() const { return form.has_value() || min_tokens > 0; }
};

class Answer {
 public:
  // The tokenizer must outlive it.
  Answer(const Tokenizer& tokenizer, AnswerSpec spec);

  // The way through spec.form, which the answer's owner makes.
  void follow(FormGuide guide) { guide_ = std::move(guide); }
  // Of the next token; null where all are. Throws what FormGuide::allowed does.
  AllowedTokens allowed();
  bool may_restrict() const { return spec_.may_restrict(); }

  // Scores of prompt tokens, in order; call before the first add.
  void add_prompt_scores(std::vector<PickedToken> scored);
  // The next token. Returns true when the answer is complete.
  bool add(const PickedToken& token);
  // For requests of no tokens: the prompt is all there is.
  void complete_prompt_only();

  bool complete() const { return !finish_reason_.empty(); }
  std::string_view finish_reason() const { return finish_reason_; }  // "stop", "length"
  const std::string& text() const { return text_; }
  // The text that came since the last call; for output while it grows.
  std::string take_new_text();
  std::int64_t n_generated() const { return n_generated_; }  // an end token included
  // What was added, to be added again to a new one; log-probabilities where they were asked for.
  std::vector<PickedToken> picked() const;
  // Log-probability per token, the end token's included; meaningful only where log-probabilities
  // were asked for.
  double mean_logprob() const;
  // {"index", "text", "finish_reason", "stop_reason", "logprobs"}
  Json choice(std::int64_t index = 0) const;
  // {"index", "message", "finish_reason", "stop_reason", "logprobs"}
  Json chat_choice(std::int64_t index = 0) const;

 private:
  void start();
  void list_prompt_tokens();
  void close(std::string_view reason);

  const Tokenizer* tokenizer_;
  AnswerSpec spec_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  LogprobList logprobs_;
  std::vector<PickedToken> prompt_scores_;
  std::string text_;
  std::size_t n_taken_ = 0;
  std::int64_t n_characters_ = 0;  // decoded so far, what is held back included
  std::size_t n_prompt_entries_ = 0;
  std::int64_t n_generated_ = 0;
  std::vector<std::int32_t> ids_;    // of what was added
  std::vector<PickedToken> scored_;  // the same, where log-probabilities were asked for
  double sum_logprob_ = 0;
  bool started_ = false;
  std::optional<FormGuide> guide_;
  std::string finish_reason_;
  Json stop_reason_;  // as vLLM says it: a stop string, the id of a stop token, or null
};

}  // namespace longhaul
