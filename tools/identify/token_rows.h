// Which of a text's tokens a layer computes, and which of them are a rank's. Pure.
//
// What the last tokens (the answers) give depends, in the student, on few others: its heads see the
// first tokens and a window. So the student is computed there and nowhere else, and what is left
// out has no influence on loss and gradients:
//
//   answers                                      xxx
//   rows that layer 1 computes   ss            xxxxx     s: sinks
//   rows that layer 0 computes   ss          xxxxxxx     x: window by window, layer by layer
//   the whole text               ...................     what the teacher computes
//
// Tokens are dealt to ranks in blocks, one after the other, so that every layer's rows, which end
// with the text, and the causal mask are shared evenly.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/model_spec.h"

namespace longhaul {

// The first `n_first` tokens of a text and those from `tail` on: whole blocks, n_first <= tail.
struct TokenSet {
  std::int64_t n_first = 0;
  std::int64_t tail = 0;
  bool contains(std::int64_t position) const { return position < n_first || position >= tail; }
  bool operator==(const TokenSet&) const = default;
};

struct StudentWindow {
  std::int64_t sink = 128;    // tokens
  std::int64_t recent = 256;  // tokens, the query's own included
};

// [n_layers + 1]: what each layer reads, and last the rows of the answers, which are the text's
// last `n_answer` tokens.
std::vector<TokenSet> student_rows(const ModelSpec& spec, const StudentWindow& window,
                                   std::int64_t n_tokens, std::int64_t n_answer,
                                   std::int64_t block_size);

// One rank's tokens of a set: block i of the text is rank i mod n_ranks's.
struct TokenDeal {
  std::int64_t n_tokens = 0;
  std::int64_t block_size = 64;
  std::int64_t n_ranks = 1;

  std::vector<std::int64_t> blocks(const TokenSet& set, std::int64_t rank) const;     // ascending
  std::vector<std::int64_t> positions(const TokenSet& set, std::int64_t rank) const;  // ascending
};

// Where in an ascending list of positions the members of a set stand: two runs of rows.
struct RowParts {
  Extent first;
  Extent last;
  std::int64_t size() const { return first.size() + last.size(); }
};
RowParts rows_in(std::span<const std::int64_t> positions, const TokenSet& set);

}  // namespace longhaul
