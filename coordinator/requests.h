// Requests as users write them: JSON Lines in the form of OpenAI's Batch service, one
// /v1/completions or /v1/chat/completions call per line, with `documents` as the one addition. Read
// strictly: a field that would change the answer and is not understood is a problem, never ignored.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "cluster/wire/logit_rules.h"
#include "model/forms/form.h"

namespace longhaul {

// A text that stands before the prompt: a file, or the text itself.
struct DocumentRef {
  std::filesystem::path path;         // as written; empty: `text` is the document
  std::optional<std::string> sha256;  // lower-case hexadecimal, when the request promises one
  std::optional<std::string> text = {};
  bool operator==(const DocumentRef&) const = default;
};

// Where the documents of a chat request stand.
enum class DocumentPlace {
  kFirstUser,  // before the text of the first user message: questions on it share its prefill
  kSystem,     // before the text of the system message, which is made when there is none
  kLastUser,   // before the text of the last user message
};

// A conversation. Its template is applied when the request is prepared.
struct ChatPrompt {
  Json variables;  // what the template is told: an object with "messages", "tools", ...
  bool add_generation_prompt = true;
  DocumentPlace place = DocumentPlace::kFirstUser;
  std::string separator = "\n\n";  // after each document
};

// Text, or ids that are taken exactly as they are, or a conversation.
using Prompt = std::variant<std::string, std::vector<std::int32_t>, ChatPrompt>;

// What a request says itself; what it leaves open comes from the defaults of the run.
struct Request {
  std::int64_t line = 0;  // in the requests file, from 1; 0: not from a file
  std::string custom_id;
  std::string body_sha256;      // of the body's canonical text: keys sorted, no spaces
  std::vector<Prompt> prompts;  // each is answered by itself; a conversation is the only one
  std::int64_t n = 1;           // answers to each prompt that are given back
  std::int64_t best_of = 1;     // answers to each prompt that are made; at least n
  std::vector<DocumentRef> documents;
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;  // 0 = off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<std::uint64_t> seed;
  std::optional<double> repetition_penalty;  // LogitRules say what these four do
  std::optional<double> frequency_penalty;
  std::optional<double> presence_penalty;
  std::vector<TokenBias> logit_bias;
  std::int64_t min_tokens = 0;  // before these are there, nothing but max_tokens or the end of a
                                // given form ends the answer
  std::optional<std::vector<std::string>> stop;  // none: as the run has it
  std::optional<forms::FormSource> form;
  std::vector<std::int32_t> stop_token_ids;  // these end the answer too
  bool ignore_eos = false;                   // the model's own end tokens do not end the answer
  std::int64_t n_logprobs = -1;              // -1: none wanted
  bool echo = false;

  // Null for texts and ids. There must be a prompt.
  const ChatPrompt* chat() const { return std::get_if<ChatPrompt>(&prompts.at(0)); }
};

struct Problem {
  std::int64_t line = 0;
  std::string message;
  std::string custom_id = {};  // of the line; empty when it cannot be told
};
// "requests.jsonl:7: body.top_p: 1.5 is outside [0, 1]"
std::string describe(const Problem& problem, std::string_view source);

struct ParsedRequests {
  std::vector<Request> requests;  // in file order, the faultless ones
  std::vector<Problem> problems;  // in file order, all there are
};

// Reads all lines; empty lines are skipped. No file access: documents are looked at by
// check_documents (coordinator/documents.h). Never throws for what the text holds. A line may have
// 256 MB.
ParsedRequests parse_requests(std::string_view text, std::string_view source);

}  // namespace longhaul
