#include "coordinator/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/file.h"

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
  for (const auto& path : group.documents) {
    const MappedFile file(path);
    const Ids more = encode(tokenizer, file.text(), config);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
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

PreparedRequest prepare_request(std::size_t index, const Request& request, const Ids& document,
                                const Tokenizer& tokenizer, const PreparationConfig& config) {
  PreparedRequest prepared;
  prepared.index = index;
  Job& job = prepared.job;
  job.request = RequestId{static_cast<std::int64_t>(index)};
  job.prompt = prompt_ids(request, tokenizer, config);
  if (job.prompt.empty() && document.empty())
    throw Error(ErrorCode::kInvalidArgument, "the prompt is empty and there is no document");
  job.sampling = sampling_of(request, config.defaults);
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
  answer.eos = config.eos;
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

PreparedGroup prepare(const RequestGroup& group, const std::vector<Request>& requests,
                      const Tokenizer& tokenizer, const PreparationConfig& config) {
  PreparedGroup prepared;
  try {
    prepared.document = read_documents(group, tokenizer, config);
  } catch (const Error& error) {
    for (const std::size_t index : group.requests)
      prepared.failures.push_back({index, "document_unreadable", error.what()});
    return prepared;
  }
  const auto n_document = static_cast<std::int64_t>(prepared.document.size());
  for (const std::size_t index : group.requests) {
    try {
      PreparedRequest request =
          prepare_request(index, requests[index], prepared.document, tokenizer, config);
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
