#include "coordinator/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "model/tokenizer/utf8.h"

namespace longhaul {
namespace {

using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, const PreparationConfig& config) {
  return tokenizer.encode(
      text, {.add_special_tokens = false, .parse_special = config.parse_special}, config.n_threads);
}

void throw_if_stopped(const PreparationConfig& config) {
  if (config.texts.stop_requested && config.texts.stop_requested())
    throw Error(ErrorCode::kCancelled, "stopped while a document was prepared");
}

// What is read is what was hashed when the run began: results are kept under that hash.
std::string unchanged_text(const DocumentRef& document, const PreparationConfig& config) {
  std::string text = read_document(document, config.texts);
  if (document.text || !document.sha256) return text;
  const std::string now = sha256_of(text);
  if (now == *document.sha256) return text;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} changed after the run began: its SHA-256 was {}, now it is {}; run "
                          "again with --retry-errors when it is whole",
                          document.path.string(), *document.sha256, now));
}

// Whether a text has more tokens than the context, found without tokenising all of a long one.
// Parts are counted by themselves, which makes a few tokens more than there are.
bool surely_exceeds(const Tokenizer& tokenizer, std::string_view text,
                    const PreparationConfig& config) {
  constexpr std::size_t kUsualBytesPerToken = 8;  // of prose it is 4 to 5: no double work for it
  constexpr std::size_t kLeastPart = std::size_t{1} << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // of heads that forget, any number
  const auto context =
      static_cast<std::size_t>(std::clamp<std::int64_t>(config.ctx_size, 0, kMost));
  const std::size_t part = std::max(kLeastPart, kUsualBytesPerToken * context);
  if (text.size() <= part) return false;
  const std::size_t enough = context + context / 10 + 1000;
  std::size_t n_tokens = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    throw_if_stopped(config);
    std::size_t end = std::min(text.size(), begin + part);
    while (end < text.size() && end > begin + 1 && tokenization::is_continuation(text[end])) --end;
    n_tokens += encode(tokenizer, text.substr(begin, end - begin), config).size();
    if (n_tokens > enough) return true;
    begin = end;
  }
  return false;
}

// Why a group's documents cannot be worked on, as the errors file says it.
struct Refusal {
  std::string code;
  std::string message;
};

std::optional<Refusal> too_long(const Tokenizer& tokenizer, std::string_view text,
                                const PreparationConfig& config) {
  if (!surely_exceeds(tokenizer, text, config)) return std::nullopt;
  return Refusal{"context_length_exceeded",
                 fmt::format("a document of {} bytes has more tokens than the context of {}; "
                             "shorten it, or raise --ctx-size if the model allows it",
                             text.size(), config.ctx_size)};
}

// The tokens of each request that can be done, and what they share.
struct GroupIds {
  std::vector<PreparedDocument> documents;
  std::vector<std::pair<std::size_t, std::vector<PromptIds>>> prompts;  // by request
  std::optional<Refusal> refusal;
};

GroupIds read_documents(const RequestGroup& group, const Tokenizer& tokenizer,
                        const PreparationConfig& config) {
  GroupIds ids;
  Ids& all = ids.documents.emplace_back().ids;
  if (group.documents.empty()) return ids;
  all = leading_special_tokens(tokenizer);
  for (const DocumentRef& document : group.documents) {
    throw_if_stopped(config);
    const std::string text = unchanged_text(document, config);
    if ((ids.refusal = too_long(tokenizer, text, config))) return ids;
    const Ids more = encode(tokenizer, text, config);
    all.insert(all.end(), more.begin(), more.end());
  }
  return ids;
}

// The documents' texts with the separator after each, as valid UTF-8.
std::string text_of_documents(const RequestGroup& group, std::string_view separator,
                              const PreparationConfig& config) {
  std::string all;
  for (const DocumentRef& document : group.documents) {
    throw_if_stopped(config);
    all += unchanged_text(document, config);
    all += separator;
  }
  return tokenization::replace_invalid(all);
}

const ChatSetup& chat_setup(const PreparationConfig& config) {
  if (config.chat == nullptr) throw Error(ErrorCode::kInvalidArgument, config.no_chat_reason);
  return *config.chat;
}

// Throws kInvalidArgument for ids that the model does not have.
Ids prompt_ids(const Prompt& prompt, bool has_documents, const Tokenizer& tokenizer,
               const PreparationConfig& config) {
  if (const auto* ids = std::get_if<Ids>(&prompt)) {
    for (const std::int32_t id : *ids) {
      if (id < 0 || id >= config.vocab_size) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("the prompt holds token id {}; the model's ids end at {}", id,
                                config.vocab_size - 1));
      }
    }
    return *ids;
  }
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
    return chat_ids(*chat, "", chat_setup(config), tokenizer, config.parse_special,
                    config.n_threads)
        .ids;
  }
  Ids ids;
  if (!has_documents) ids = leading_special_tokens(tokenizer);
  const Ids text = encode(tokenizer, std::get<std::string>(prompt), config);
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

// Throws kInvalidArgument; a prompt that is too long for the context is told by its index in
// `too_long`.
PreparedRequest prepare_request(std::size_t index, const Request& request,
                                std::vector<PromptIds> prompts, std::vector<GroupContext>& contexts,
                                std::optional<std::size_t>& too_long) {
  const PreparationConfig& config = contexts.front().config;
  PreparedRequest prepared;
  prepared.index = index;
  prepared.is_chat = request.chat() != nullptr;
  prepared.n_answers = request.best_of;
  prepared.n_kept = request.n;
  prepared.sampling = sampling_of(request, config.defaults);
  // Which answers are the likeliest is told by the log-probabilities of their tokens.
  if (request.best_of > request.n)
    prepared.sampling.n_logprobs = std::max<std::int64_t>(prepared.sampling.n_logprobs, 0);
  prepared.max_tokens = max_tokens_of(request, config.defaults);
  if (request.echo) prepared.score_logprobs = request.n_logprobs;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GroupContext& group = contexts.at(prompts[i].document);
    const auto n = static_cast<std::int64_t>(group.document.size() + prompts[i].ids.size());
    if (n + prepared.max_tokens > config.ctx_size && !too_long) too_long = i;
    prepared.n_prompt_tokens += n;
    PreparedPrompt& prompt = prepared.prompts.emplace_back(
        prepare_prompt(request.prompts[i], std::move(prompts[i].ids), request, group));
    prompt.document = prompts[i].document;
    if (prompts[i].n_of_part == 0) continue;
    prompt.part = 0;
    prompt.ids.erase(prompt.ids.begin(),
                     prompt.ids.begin() + static_cast<std::ptrdiff_t>(prompts[i].n_of_part));
  }
  return prepared;
}

bool is_empty(const Prompt& prompt) {
  if (const auto* ids = std::get_if<Ids>(&prompt)) return ids->empty();
  const auto* text = std::get_if<std::string>(&prompt);
  return text != nullptr && text->empty();
}

// A step needs at least one token: where a prompt is empty, the document's last token becomes its
// first one, and that of every prompt; but where documents are cut, the others' document stays as
// it is. `has_ended_one`: a request with an empty prompt ended in an earlier run.
void fill_empty_prompts(PreparedGroup& group, bool has_ended_one, bool cuts_documents) {
  std::vector<PreparedPrompt*> all;
  std::vector<PreparedPrompt*> empty;
  for (PreparedRequest& request : group.requests) {
    for (PreparedPrompt& prompt : request.prompts) {
      all.push_back(&prompt);
      if (prompt.ids.empty()) empty.push_back(&prompt);
    }
  }
  const bool takes_for_all = has_ended_one && !cuts_documents;
  if (empty.empty() && !takes_for_all) return;
  const Ids& document = group.documents.front().ids;
  if (document.empty()) return;
  const std::int32_t last = document.back();
  if (cuts_documents && empty.size() < all.size()) {
    group.documents.push_back({.ids = {document.begin(), document.end() - 1}});
  } else {
    group.documents.front().ids.pop_back();
    empty = all;
  }
  for (PreparedPrompt* prompt : empty) {
    prompt->document = group.documents.size() - 1;
    prompt->ids.insert(prompt->ids.begin(), last);
    prompt->answer.prompt.insert(prompt->answer.prompt.begin(), last);
    prompt->answer.n_hidden = 1;
  }
}

// Of each request, the tokens that an earlier prompt of the group has, too.
void count_cached_tokens(PreparedGroup& group) {
  std::vector<bool> is_read(group.documents.size());
  std::vector<bool> is_part_read(group.documents.size());
  for (PreparedRequest& request : group.requests) {
    for (const PreparedPrompt& prompt : request.prompts) {
      const PreparedDocument& document = group.documents[prompt.document];
      if (is_read[prompt.document])
        request.n_cached_tokens += static_cast<std::int64_t>(document.ids.size());
      if (prompt.part && is_part_read[prompt.document])
        request.n_cached_tokens += static_cast<std::int64_t>(document.parts[*prompt.part].size());
      is_read[prompt.document] = true;
      is_part_read[prompt.document] = is_part_read[prompt.document] || prompt.part.has_value();
    }
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

GroupIds completion_ids(const RequestGroup& group, const std::vector<Request>& requests,
                        const Tokenizer& tokenizer, const PreparationConfig& config,
                        std::vector<FailedRequest>& failures) {
  GroupIds ids = read_documents(group, tokenizer, config);
  if (ids.refusal) return ids;
  for (const std::size_t index : group.requests) {
    try {
      std::vector<PromptIds> prompts;
      for (const Prompt& prompt : requests[index].prompts)
        prompts.push_back({prompt_ids(prompt, !group.documents.empty(), tokenizer, config)});
      ids.prompts.emplace_back(index, std::move(prompts));
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
      text_of_documents(group, requests[group.requests.front()].chat()->separator, config);
  GroupIds ids;
  if ((ids.refusal = too_long(tokenizer, documents, config))) return ids;
  SharedTexts texts(config.cuts_documents, group.requests.size() + group.ended.size() == 1);
  for (const std::size_t index : group.requests) {
    try {
      ChatIds chat = chat_ids(*requests[index].chat(), documents, chat_setup(config), tokenizer,
                              config.parse_special, config.n_threads);
      require(!chat.ids.empty(), "the template writes nothing for this conversation");
      texts.add(std::move(chat));
      ids.prompts.emplace_back(index, std::vector<PromptIds>());
    } catch (const Error& error) {
      failures.push_back({index, "invalid_argument", error.what()});
    }
  }
  ids.documents = texts.take_documents();
  std::vector<PromptIds> prompts = texts.take_prompts();
  for (std::size_t i = 0; i < prompts.size(); ++i)
    ids.prompts[i].second.push_back(std::move(prompts[i]));
  return ids;
}

Refusal why_unread(const Error& error) {
  const bool changed = error.code() == ErrorCode::kFailedPrecondition;
  return {changed ? "document_changed" : "document_unreadable", error.what()};
}

}  // namespace

std::vector<std::int64_t> document_lengths(const PreparedGroup& group) {
  std::vector<std::int64_t> lengths;
  for (const PreparedDocument& document : group.documents)
    lengths.push_back(std::ssize(document.ids));
  return lengths;
}

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
    if (error.code() == ErrorCode::kCancelled) throw;
    ids.refusal = why_unread(error);
  } catch (const std::bad_alloc&) {
    ids.refusal = Refusal{
        kOutOfMemoryCode,
        "out of memory: take a shorter document or fewer threads (--threads), or give more"};
  }
  if (ids.refusal) {
    prepared.failures.clear();
    for (const std::size_t index : group.requests)
      prepared.failures.push_back({index, ids.refusal->code, ids.refusal->message});
    return prepared;
  }
  prepared.documents = std::move(ids.documents);
  std::vector<GroupContext> contexts;
  for (const PreparedDocument& document : prepared.documents)
    contexts.push_back({.document = document.ids, .tokenizer = tokenizer, .config = config});
  for (auto& [index, prompts] : ids.prompts) {
    try {
      std::optional<std::size_t> too_long;
      PreparedRequest request =
          prepare_request(index, requests[index], std::move(prompts), contexts, too_long);
      if (too_long) {
        const PreparedPrompt& prompt = request.prompts[*too_long];
        const auto n_document =
            static_cast<std::int64_t>(prepared.documents[prompt.document].ids.size());
        std::int64_t n_prompt = std::ssize(prompt.ids);
        if (prompt.part)
          n_prompt += std::ssize(prepared.documents[prompt.document].parts[*prompt.part]);
        prepared.failures.push_back(
            {index, "context_length_exceeded",
             context_error(n_document, n_prompt, request.max_tokens, config.ctx_size)});
        continue;
      }
      prepared.requests.push_back(std::move(request));
    } catch (const Error& error) {
      prepared.failures.push_back({index, "invalid_argument", error.what()});
    }
  }
  const bool has_ended_one =
      !is_chat && std::any_of(group.ended.begin(), group.ended.end(), [&](std::size_t index) {
        return std::any_of(requests[index].prompts.begin(), requests[index].prompts.end(),
                           is_empty);
      });
  fill_empty_prompts(prepared, has_ended_one, config.cuts_documents);
  count_cached_tokens(prepared);
  return prepared;
}

}  // namespace longhaul
