#include "coordinator/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/id_set.h"
#include "coordinator/shared_prefix.h"
#include "model/tokenizer/utf8.h"

namespace longhaul {
namespace {

constexpr std::size_t kContextTokens = 4;

using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, const PreparationConfig& config) {
  return tokenizer.encode(
      text, {.add_special_tokens = false, .parse_special = config.parse_special}, config.n_threads);
}

Ids read_documents(const RequestGroup& group, const Tokenizer& tokenizer,
                   const PreparationConfig& config) {
  if (group.documents.empty()) return {};
  Ids ids = leading_special_tokens(tokenizer);
  for (const DocumentRef& document : group.documents) {
    const Ids more = document.text ? encode(tokenizer, *document.text, config)
                                   : encode(tokenizer, MappedFile(document.path).text(), config);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

// The documents' texts with the separator after each, as valid UTF-8.
std::string text_of_documents(const RequestGroup& group, std::string_view separator) {
  std::string all;
  for (const DocumentRef& document : group.documents) {
    all += document.text ? *document.text : std::string(MappedFile(document.path).text());
    all += separator;
  }
  return tokenization::replace_invalid(all);
}

const ChatSetup& chat_setup(const PreparationConfig& config) {
  if (config.chat == nullptr) throw Error(ErrorCode::kInvalidArgument, config.no_chat_reason);
  return *config.chat;
}

// Throws kInvalidArgument for ids that the model does not have.
Ids prompt_ids(const Request& request, const Tokenizer& tokenizer,
               const PreparationConfig& config) {
  if (const auto* ids = std::get_if<Ids>(&request.prompt)) {
    for (const std::int32_t id : *ids) {
      if (id < 0 || id >= config.vocab_size) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("the prompt holds token id {}; the model's ids end at {}", id,
                                config.vocab_size - 1));
      }
    }
    return *ids;
  }
  if (const ChatPrompt* chat = request.chat()) {
    return chat_ids(*chat, "", chat_setup(config), tokenizer, config.parse_special,
                    config.n_threads)
        .ids;
  }
  Ids ids;
  if (request.documents.empty()) ids = leading_special_tokens(tokenizer);
  const Ids text = encode(tokenizer, std::get<std::string>(request.prompt), config);
  ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

std::string context_error(std::int64_t n_document, std::int64_t n_prompt, std::int64_t max_tokens,
                          std::int64_t ctx_size) {
  return fmt::format(
      "needs {} tokens ({} of documents, {} of the prompt, up to {} new ones); the context has {}. "
      "Lower max_tokens, shorten the text, or raise --ctx-size if the model allows it",
      n_document + n_prompt + max_tokens, n_document, n_prompt, max_tokens, ctx_size);
}

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

PreparedRequest prepare_request(std::size_t index, const Request& request, const Ids& document,
                                Ids prompt, const Tokenizer& tokenizer,
                                const PreparationConfig& config, IdSet& of_document) {
  PreparedRequest prepared;
  prepared.index = index;
  prepared.is_chat = request.chat() != nullptr;
  Job& job = prepared.job;
  job.request = RequestId{static_cast<std::int64_t>(index)};
  job.prompt = std::move(prompt);
  if (job.prompt.empty() && document.empty())
    throw Error(ErrorCode::kInvalidArgument, "the prompt is empty and there is no document");
  job.sampling = sampling_of(request, config.defaults);
  job.rules = rules_of(request, document, job.prompt, config, of_document);
  job.max_tokens = max_tokens_of(request, config.defaults);
  if (request.echo) job.score_logprobs = request.n_logprobs;

  AnswerSpec& answer = prepared.answer;
  answer.prompt = job.prompt;
  answer.context = last_tokens(document, job.prompt);
  if (request.echo) {
    const auto* text = std::get_if<std::string>(&request.prompt);
    answer.echo_text = text != nullptr ? *text : tokenizer.decode(job.prompt);
  }
  answer.echo = request.echo;
  answer.n_logprobs = request.n_logprobs;
  answer.max_tokens = job.max_tokens;
  answer.stop = request.stop;
  set_end_tokens(request, config, answer);
  if (request.form) answer.form = FormSpec{*request.form, config.vocab_size};
  prepared.n_prompt_tokens = static_cast<std::int64_t>(document.size() + job.prompt.size());
  return prepared;
}

// A step needs at least one token: where a prompt is empty, the document's last token becomes the
// first one of every prompt.
void fill_empty_prompts(PreparedGroup& group) {
  const bool any_empty = std::any_of(group.requests.begin(), group.requests.end(),
                                     [](const auto& r) { return r.job.prompt.empty(); });
  if (!any_empty) return;
  const std::int32_t last = group.document.back();
  group.document.pop_back();
  for (PreparedRequest& request : group.requests) {
    request.job.prompt.insert(request.job.prompt.begin(), last);
    request.answer.prompt.insert(request.answer.prompt.begin(), last);
    request.answer.n_hidden = 1;
  }
}

}  // namespace

std::vector<std::int32_t> leading_special_tokens(const Tokenizer& tokenizer) {
  const Ids plain = tokenizer.encode("a", {.add_special_tokens = false});
  const Ids with = tokenizer.encode("a", {.add_special_tokens = true});
  const auto at = std::search(with.begin(), with.end(), plain.begin(), plain.end());
  return {with.begin(), at == with.end() ? with.begin() : at};
}

namespace {

// The tokens of each request that can be done, and what they share.
struct GroupIds {
  Ids document;
  std::vector<std::pair<std::size_t, Ids>> prompts;  // by request
};

GroupIds completion_ids(const RequestGroup& group, const std::vector<Request>& requests,
                        const Tokenizer& tokenizer, const PreparationConfig& config,
                        std::vector<FailedRequest>& failures) {
  GroupIds ids{.document = read_documents(group, tokenizer, config), .prompts = {}};
  for (const std::size_t index : group.requests) {
    try {
      ids.prompts.emplace_back(index, prompt_ids(requests[index], tokenizer, config));
    } catch (const Error& error) {
      failures.push_back({index, "invalid_argument", error.what()});
    }
  }
  return ids;
}

// Conversations about the same documents: what their texts share is found in the tokens themselves.
GroupIds conversation_ids(const RequestGroup& group, const std::vector<Request>& requests,
                          const Tokenizer& tokenizer, const PreparationConfig& config,
                          std::vector<FailedRequest>& failures) {
  const std::string documents =
      text_of_documents(group, requests[group.requests.front()].chat()->separator);
  GroupIds ids;
  SharedPrefix shared;
  for (const std::size_t index : group.requests) {
    try {
      ChatIds chat = chat_ids(*requests[index].chat(), documents, chat_setup(config), tokenizer,
                              config.parse_special, config.n_threads);
      require(!chat.ids.empty(), "the template writes nothing for this conversation");
      // Alone, a request shares its documents: caches that are saved are theirs.
      const std::size_t most = group.requests.size() > 1 ? chat.ids.size() : chat.n_document;
      shared.add(std::move(chat.ids), most);
      ids.prompts.emplace_back(index, Ids());
    } catch (const Error& error) {
      failures.push_back({index, "invalid_argument", error.what()});
    }
  }
  ids.document = shared.take_prefix();
  auto rests = shared.take_rests();
  for (std::size_t i = 0; i < rests.size(); ++i) ids.prompts[i].second = std::move(rests[i]);
  return ids;
}

}  // namespace

PreparedGroup prepare(const RequestGroup& group, const std::vector<Request>& requests,
                      const Tokenizer& tokenizer, const PreparationConfig& config) {
  PreparedGroup prepared;
  const bool is_chat =
      !group.documents.empty() && requests[group.requests.front()].chat() != nullptr;
  GroupIds ids;
  try {
    ids = (is_chat ? conversation_ids : completion_ids)(group, requests, tokenizer, config,
                                                        prepared.failures);
  } catch (const Error& error) {
    for (const std::size_t index : group.requests)
      prepared.failures.push_back({index, "document_unreadable", error.what()});
    return prepared;
  }
  prepared.document = std::move(ids.document);
  const auto n_document = static_cast<std::int64_t>(prepared.document.size());
  IdSet of_document;
  for (auto& [index, prompt] : ids.prompts) {
    try {
      PreparedRequest request = prepare_request(index, requests[index], prepared.document,
                                                std::move(prompt), tokenizer, config, of_document);
      if (request.n_prompt_tokens + request.job.max_tokens > config.ctx_size) {
        prepared.failures.push_back({index, "context_length_exceeded",
                                     context_error(n_document, request.n_prompt_tokens - n_document,
                                                   request.job.max_tokens, config.ctx_size)});
        continue;
      }
      prepared.requests.push_back(std::move(request));
    } catch (const Error& error) {
      prepared.failures.push_back({index, "invalid_argument", error.what()});
    }
  }
  fill_empty_prompts(prepared);
  for (std::size_t i = 1; i < prepared.requests.size(); ++i)
    prepared.requests[i].n_cached_tokens = static_cast<std::int64_t>(prepared.document.size());
  return prepared;
}

}  // namespace longhaul
