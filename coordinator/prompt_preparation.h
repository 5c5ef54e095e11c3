// What is to be known about one prompt, once its ids are: the rules for its logits, and what its
// answers must be like.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/id_set.h"
#include "cluster/wire/logit_rules.h"
#include "coordinator/answer.h"
#include "coordinator/chat_preparation.h"
#include "coordinator/document_text.h"
#include "coordinator/requests.h"
#include "coordinator/sampling.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

struct PreparationConfig {
  SamplingDefaults defaults;
  std::vector<std::int32_t> eos;
  std::int64_t vocab_size = 0;  // of the model
  std::int64_t ctx_size = 0;    // tokens: documents, prompt and answer together
  bool parse_special = false;   // special tokens written in texts become their ids
  int n_threads = 0;            // for long documents; 0 = all cores
  // Whether a method cuts documents at their end: that is then where each prompt's own documents
  // end, whatever else is asked about them.
  bool cuts_documents = false;
  // For chat requests; without it they fail with `no_chat_reason`.
  std::shared_ptr<const ChatSetup> chat = nullptr;
  std::string no_chat_reason = {};
  bool has_broken_template = false;  // the model's own, which is the reason then
  TextLimits texts = {};             // of documents
};

struct PreparedPrompt {
  std::vector<std::int32_t> ids;         // what follows its document and part; not empty
  std::size_t document = 0;              // which of PreparedGroup::documents
  std::optional<std::size_t> part = {};  // which of its parts, if any
  LogitRulesRef rules = nullptr;
  AnswerSpec answer = {};       // of every answer to it
  std::int64_t n_answered = 0;  // of `ids`, the last ones: of its answer, picked by an earlier run
  std::vector<std::int32_t> expected = {};  // how that run's answer began, where it is made again
};

// What all prompts about a document are prepared with.
struct GroupContext {
  const std::vector<std::int32_t>& document;
  const Tokenizer& tokenizer;
  const PreparationConfig& config;
  IdSet of_document{};  // its tokens; filled when they are first wanted
};

// Throws kInvalidArgument for an empty prompt without a document, and for what the request asks of
// its answers in vain.
PreparedPrompt prepare_prompt(const Prompt& prompt, std::vector<std::int32_t> ids,
                              const Request& request, GroupContext& group);

}  // namespace longhaul
