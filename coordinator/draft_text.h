// What a draft model reads of one answer's text: its first tokens and its newest, so that what a
// guess costs does not grow with the document. Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/prompt_lookup.h"

namespace longhaul {

// With a context of 1000 tokens (D a document of 9000, P a prompt of 20, A the answer):
//
//   at first         D[0, 4) D[8504, 9000) P A         500 tokens of D, which all its answers share
//   A has grown      D[0, 4) the newest 496 of P A     when there were 936; and so again
class DraftText {
 public:
  static constexpr std::int64_t kLeastContext = 256;

  // `document` may be null.
  DraftText(std::int64_t context, LookupDocumentRef document, std::span<const std::int32_t> prompt);

  // The answer goes on with these.
  void add(std::span<const std::int32_t> tokens);

  // Never more than the context less what a step may guess.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  // How many of them every text on the document begins with, and that document.
  std::int64_t n_shared() const { return n_shared_; }
  const LookupDocumentRef& document() const { return document_; }
  // Tokens of the whole text that are left out.
  std::int64_t n_left_out() const { return n_left_out_; }

 private:
  void cut_to(std::int64_t n);

  std::int64_t context_;
  LookupDocumentRef document_;  // null once nothing is shared
  std::vector<std::int32_t> tokens_;
  std::int64_t n_shared_ = 0;
  std::int64_t n_left_out_ = 0;
};

}  // namespace longhaul
