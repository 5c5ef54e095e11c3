// Turns groups of requests into ids: documents are tokenised once per group, prompts one by one,
// and what does not fit the context is told before it costs anything.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/answer.h"
#include "coordinator/chat_preparation.h"
#include "coordinator/documents.h"
#include "coordinator/sampling.h"
#include "coordinator/scheduler.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

struct PreparationConfig {
  SamplingDefaults defaults;
  std::vector<std::int32_t> eos;
  std::int64_t vocab_size = 0;  // of the model
  std::int64_t ctx_size = 0;    // tokens: documents, prompt and answer together
  bool parse_special = false;   // special tokens written in texts become their ids
  int n_threads = 0;            // for long documents; 0 = all cores
  // For chat requests; without it they fail with `no_chat_reason`.
  std::shared_ptr<const ChatSetup> chat = nullptr;
  std::string no_chat_reason = {};
};

struct PreparedRequest {
  std::size_t index = 0;  // of the request
  bool is_chat = false;   // answered in the form of /v1/chat/completions
  Job job;                // job.request.value == index
  AnswerSpec answer;
  std::int64_t n_prompt_tokens = 0;  // documents included
  std::int64_t n_cached_tokens = 0;  // of these, shared with an earlier request of the group
};
// One request that cannot be done, as the errors file says it.
struct FailedRequest {
  std::size_t index = 0;
  std::string code;  // "context_length_exceeded", "invalid_argument", ...
  std::string message;
};
struct PreparedGroup {
  std::vector<std::int32_t> document;
  std::vector<PreparedRequest> requests;
  std::vector<FailedRequest> failures;
};

// What the tokenizer puts in front of a text, such as <s>: found by encoding one with and without.
std::vector<std::int32_t> leading_special_tokens(const Tokenizer& tokenizer);

// For /v1/completions ids = leading special tokens, each document's tokens, the prompt's tokens;
// every text is tokenised by itself. A prompt given as ids and without documents is taken exactly
// as it is. A conversation is tokenised as its template writes it, and what the requests of a group
// share of that, the template's header and the documents, is their document. Reads the documents;
// one that cannot be read fails all requests of the group. Local.
PreparedGroup prepare(const RequestGroup& group, const std::vector<Request>& requests,
                      const Tokenizer& tokenizer, const PreparationConfig& config);

}  // namespace longhaul
