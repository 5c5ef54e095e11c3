#include "coordinator/answer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"

namespace longhaul {

Answer::Answer(const Tokenizer& tokenizer, AnswerSpec spec)
    : tokenizer_(&tokenizer), spec_(std::move(spec)), decoder_(tokenizer), matcher_(spec_.stop) {
  for (const std::int32_t id : spec_.context) decoder_.push(id);
}

void Answer::add_prompt_scores(std::vector<PickedToken> scored) {
  std::move(scored.begin(), scored.end(), std::back_inserter(prompt_scores_));
}

AllowedTokens Answer::allowed() {
  AllowedTokens tokens = guide_ ? guide_->allowed() : nullptr;
  if (n_generated_ >= spec_.min_tokens) return tokens;
  IdSet longer = tokens ? *tokens : IdSet::full(spec_.vocab_size);
  for (const std::int32_t id : spec_.not_before_min) {
    if (longer.contains(id)) longer.erase(id);
  }
  // A form that can only end ends.
  return longer.count() == 0 ? tokens : std::make_shared<const IdSet>(std::move(longer));
}

// The prompt's part of the answer, once its scores are complete.
void Answer::start() {
  if (std::exchange(started_, true) || !spec_.echo) return;
  text_ = spec_.echo_text;
  n_characters_ = count_characters(text_);
  if (spec_.n_logprobs >= 0) list_prompt_tokens();
  n_prompt_entries_ = logprobs_.size();
}

// Scores end with the prompt's last token; the sequence's very first token has none.
void Answer::list_prompt_tokens() {
  const auto n_prompt = static_cast<std::int64_t>(spec_.prompt.size());
  const auto n_scores = static_cast<std::int64_t>(prompt_scores_.size());
  StreamDecoder decoder(*tokenizer_);
  std::int64_t offset = 0;
  for (std::int64_t i = spec_.n_hidden; i < n_prompt; ++i) {
    const std::int32_t id = spec_.prompt[static_cast<std::size_t>(i)];
    const std::int64_t at = i - (n_prompt - n_scores);
    if (at >= 0) {
      logprobs_.add(prompt_scores_[static_cast<std::size_t>(at)], offset);
    } else {
      logprobs_.add_unscored(id, offset);
    }
    offset += count_characters(decoder.push(id));
  }
}

bool Answer::add(const PickedToken& token) {
  require(!complete(), "answer: a token after its end");
  start();
  ++n_generated_;
  spec_.n_logprobs >= 0 ? scored_.push_back(token) : ids_.push_back(token.token);
  sum_logprob_ += static_cast<double>(token.logprob);
  const auto is_one_of = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token.token) != ids.end();
  };
  if (is_one_of(spec_.eos) || is_one_of(spec_.stop_tokens)) {
    if (!is_one_of(spec_.eos)) stop_reason_ = std::int64_t{token.token};
    close("stop");
    return true;
  }
  if (spec_.n_logprobs >= 0) logprobs_.add(token, n_characters_);
  const std::string piece = decoder_.push(token.token);
  n_characters_ += count_characters(piece);
  text_ += n_generated_ > spec_.min_tokens ? matcher_.push(piece) : matcher_.pass(piece);
  if (guide_) guide_->add(token.token);
  // A form that is complete ends the answer, also where the last token was the last one allowed.
  if (matcher_.stopped() || (guide_ && guide_->must_end())) {
    close("stop");
  } else if (n_generated_ >= spec_.max_tokens) {
    close("length");
  }
  return complete();
}

void Answer::complete_prompt_only() {
  start();
  close("length");
}

void Answer::close(std::string_view reason) {
  finish_reason_ = reason;
  if (!matcher_.stopped() && n_generated_ > 0) {
    const std::string rest = decoder_.finish();
    text_ += n_generated_ > spec_.min_tokens ? matcher_.push(rest) : matcher_.pass(rest);
  }
  if (matcher_.stopped()) {
    finish_reason_ = "stop";
    stop_reason_ = matcher_.found();
    logprobs_.cut(n_prompt_entries_, count_characters(text_));
  } else {
    text_ += matcher_.finish();
  }
}

std::vector<PickedToken> Answer::picked() const {
  if (spec_.n_logprobs >= 0) return scored_;
  std::vector<PickedToken> tokens;
  for (const std::int32_t id : ids_) tokens.emplace_back().token = id;
  return tokens;
}

std::string Answer::take_new_text() {
  std::string piece = text_.substr(n_taken_);
  n_taken_ = text_.size();
  return piece;
}

double Answer::mean_logprob() const {
  return n_generated_ == 0 ? 0 : sum_logprob_ / static_cast<double>(n_generated_);
}

Json Answer::choice(std::int64_t index) const {
  return JsonObject{
      {"index", index},
      {"text", text_},
      {"finish_reason", finish_reason_},
      {"stop_reason", stop_reason_},
      {"logprobs", spec_.n_logprobs >= 0 ? logprobs_.to_json(*tokenizer_) : Json(nullptr)}};
}

Json Answer::chat_choice(std::int64_t index) const {
  return JsonObject{
      {"index", index},
      {"message", JsonObject{{"role", "assistant"}, {"content", text_}}},
      {"finish_reason", finish_reason_},
      {"stop_reason", stop_reason_},
      {"logprobs", spec_.n_logprobs >= 0 ? logprobs_.to_chat_json(*tokenizer_) : Json(nullptr)}};
}

}  // namespace longhaul
