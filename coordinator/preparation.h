// Turns groups of requests into ids: documents are tokenised once per group, prompts one by one,
// and what does not fit the context is told before it costs anything.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/documents.h"
#include "coordinator/prompt_preparation.h"
#include "coordinator/shared_texts.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

// Its answers are numbered prompt by prompt; answer i is drawn with the seed of `sampling` plus i.
struct PreparedRequest {
  std::size_t index = 0;    // of the request
  bool is_chat = false;     // answered in the form of /v1/chat/completions
  SamplingParams sampling;  // of the first answer
  std::int64_t max_tokens = 0;
  std::int64_t score_logprobs = -1;  // as PrefillChunk::score_logprobs
  std::int64_t n_answers = 1;        // that are made to each prompt
  std::int64_t n_kept = 1;           // and given back, those that the model finds likeliest
  std::vector<PreparedPrompt> prompts;
  std::int64_t n_prompt_tokens = 0;  // of all prompts, documents included
  std::int64_t n_cached_tokens = 0;  // of these, shared with an earlier prompt of the group
};
// The code of requests that fail for want of memory, here or on the workers.
inline constexpr const char* kOutOfMemoryCode = "out_of_memory";
// One request that cannot be done, as the errors file says it.
struct FailedRequest {
  std::size_t index = 0;
  std::string code;  // "context_length_exceeded", "invalid_argument", ...
  std::string message;
};
struct PreparedGroup {
  // One, but where a method cuts documents and they do not end alike in all prompts.
  std::vector<PreparedDocument> documents;
  std::vector<PreparedRequest> requests;
  std::vector<FailedRequest> failures;
};

// Tokens of each of its documents.
std::vector<std::int64_t> document_lengths(const PreparedGroup& group);

// What the tokenizer puts in front of a text, such as <s>: found by encoding one with and without.
std::vector<std::int32_t> leading_special_tokens(const Tokenizer& tokenizer);

// For /v1/completions ids = leading special tokens, each document's tokens, the prompt's tokens;
// every text is tokenised by itself. A prompt given as ids and without documents is taken exactly
// as it is. A conversation is tokenised as its template writes it, and what the requests of a group
// share of that, the template's header and the documents, is their document; where a method cuts
// documents, it ends with them, and what the conversations share behind is a part. Reads the
// documents; one that cannot be read, that is not what it was when it was checked (its
// DocumentRef's SHA-256), or that surely does not fit the context fails all requests of the group.
// Throws kCancelled when a stop was asked for while it reads. Local.
PreparedGroup prepare(const RequestGroup& group, const std::vector<Request>& requests,
                      const Tokenizer& tokenizer, const PreparationConfig& config);

}  // namespace longhaul
