#include "coordinator/prompt_preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr std::size_t kContextTokens = 4;

using Ids = std::vector<std::int32_t>;

// The last tokens of `document` and `prompt` taken together.
Ids last_tokens(const Ids& document, const Ids& prompt) {
  const std::size_t of_prompt = std::min(prompt.size(), kContextTokens);
  const std::size_t of_document = std::min(document.size(), kContextTokens - of_prompt);
  Ids last(document.end() - static_cast<std::ptrdiff_t>(of_document), document.end());
  last.insert(last.end(), prompt.end() - static_cast<std::ptrdiff_t>(of_prompt), prompt.end());
  return last;
}

// The model's end tokens and the request's own.
void set_end_tokens(const Request& request, const PreparationConfig& config, AnswerSpec& answer) {
  if (!request.ignore_eos) answer.eos = config.eos;
  answer.stop_tokens = request.stop_token_ids;
  answer.form_ends = answer.eos;
  answer.form_ends.insert(answer.form_ends.end(), request.stop_token_ids.begin(),
                          request.stop_token_ids.end());
  if (request.min_tokens == 0) return;
  if (request.min_tokens > answer.max_tokens) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("min_tokens is {}, more than the {} that max_tokens allows",
                            request.min_tokens, answer.max_tokens));
  }
  answer.min_tokens = request.min_tokens;
  answer.vocab_size = config.vocab_size;
  answer.not_before_min = config.eos;  // with ignore_eos too, as in vLLM
  answer.not_before_min.insert(answer.not_before_min.end(), request.stop_token_ids.begin(),
                               request.stop_token_ids.end());
}

void insert_all(const Ids& ids, IdSet& set) {
  for (const std::int32_t id : ids) {
    if (id < set.size()) set.insert(id);  // others are refused when they are read
  }
}

// Null where nothing is asked for. `of_document` is filled with the document's tokens when they are
// first wanted: all requests of a group share them.
LogitRulesRef rules_of(const Request& request, const Ids& document, const Ids& prompt,
                       const PreparationConfig& config, IdSet& of_document) {
  LogitRules rules = logit_rules_of(request, config.defaults);
  if (rules == LogitRules{}) return nullptr;
  if (!rules.bias.empty() && rules.bias.back().token >= config.vocab_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("logit_bias names token id {}; the model's ids end at {}",
                            rules.bias.back().token, config.vocab_size - 1));
  }
  if (rules.repetition_penalty != 1) {
    if (of_document.size() == 0) {
      of_document = IdSet(config.vocab_size);
      insert_all(document, of_document);
    }
    rules.prompt_tokens = of_document;
    insert_all(prompt, rules.prompt_tokens);
  }
  return std::make_shared<const LogitRules>(std::move(rules));
}

}  // namespace

PreparedPrompt prepare_prompt(const Prompt& prompt, Ids ids, const Request& request,
                              GroupContext& group) {
  const PreparationConfig& config = group.config;
  if (ids.empty() && group.document.empty())
    throw Error(ErrorCode::kInvalidArgument, "the prompt is empty and there is no document");
  PreparedPrompt prepared{.ids = std::move(ids)};
  prepared.rules = rules_of(request, group.document, prepared.ids, config, group.of_document);
  AnswerSpec& answer = prepared.answer;
  answer.context = last_tokens(group.document, prepared.ids);
  if (request.echo) {
    const auto* text = std::get_if<std::string>(&prompt);
    answer.prompt = prepared.ids;
    answer.echo_text = text != nullptr ? *text : group.tokenizer.decode(prepared.ids);
  }
  answer.echo = request.echo;
  answer.n_logprobs = request.n_logprobs;
  answer.max_tokens = max_tokens_of(request, config.defaults);
  answer.stop = stop_of(request, config.defaults);
  set_end_tokens(request, config, answer);
  if (request.form) answer.form = FormSpec{*request.form, config.vocab_size};
  return prepared;
}

}  // namespace longhaul
