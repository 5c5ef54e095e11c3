// Guesses how an answer goes on, from where its last tokens stood before in its documents, its
// prompt or itself. Pure.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coordinator/guess_length.h"
#include "coordinator/token_index.h"

namespace longhaul {

struct LookupConfig {
  std::int64_t most = 0;   // guesses of one step for one sequence; 0: none
  std::int64_t least = 3;  // tokens that must agree
};

// A document's tokens; those of the documents before it, if there are any. Shared by all requests.
struct LookupDocument {
  std::shared_ptr<const LookupDocument> before;
  TokenIndex index;
};
using LookupDocumentRef = std::shared_ptr<const LookupDocument>;

// Of one answer. Copies share their documents.
class PromptLookup {
 public:
  PromptLookup(const LookupConfig& config, LookupDocumentRef document,
               std::span<const std::int32_t> prompt);

  // The answer goes on with these.
  void add(std::span<const std::int32_t> tokens) { own_.append(tokens); }
  // What may come next: at most so many, and as many as the guesses so far suggest.
  std::vector<std::int32_t> guess(std::int64_t most);
  // How many of the last guess() came true.
  void learn(std::int64_t n_guessed, std::int64_t n_true) { length_.learn(n_guessed, n_true); }

 private:
  LookupDocumentRef document_;
  TokenIndex own_;  // the end of the documents, the prompt, the answer
  GuessLength length_;
};

}  // namespace longhaul
