// Retrieval heads found by forward passes alone: how much each head attends to what it would have
// to fetch. Cheap beside the optimisation of gates, and less exact.
//
//   echo, induction   a random text that is repeated: attention to the same token in an earlier
//   copy,
//                     and to the one behind it (RazorAttention, Tang et al. 2024, arXiv 2407.15891,
//                     section 3.1 and table 1)
//   needle            answers to questions about records: how often the most attended token is the
//                     one of the record that is copied (Wu et al. 2024, arXiv 2404.15574, section
//                     2)
//   repetition        a text that is written once more behind itself: the most that a token of the
//                     first copy gets from any query of the second, averaged over tokens (the head
//                     scores of KVzip, Kim et al. 2025, arXiv 2505.23416, section 3.4)
//
// A KV head has the score of the best of its query heads.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tools/identify/two_way_pass.h"

namespace longhaul {

using HeadScores = std::vector<double>;  // [n_layers, n_kv_heads]

struct CopyScores {
  HeadScores echo;
  HeadScores induction;
};
// `n_random` tokens drawn by the seed from [0, vocab_size) and repeated `n_copies` times. The mean
// over all queries behind the first copy of the attention to all earlier copies.
struct CopyText {
  std::int64_t n_random = 2500;
  std::int64_t n_copies = 4;
  std::uint64_t seed = 42;
};
// All are collective over the pass' communicator, with the same result on all ranks. Each throws
// kCorruptData on a rank that has a row whose attention is not finite.
CopyScores copy_scores(TwoWayPass& pass, const ModelSpec& spec, Communicator& comm,
                       const CopyText& text);

// Of a text whose last n_answer tokens are questions and answers. A token of the answers counts
// when it is copied: the two tokens before it and itself stand once more earlier in the text, and
// the head's most attended key at the query before it is that token.
HeadScores needle_scores(TwoWayPass& pass, const ModelSpec& spec, Communicator& comm,
                         std::span<const std::int32_t> tokens, std::int64_t n_answer);

// Of a text [2 n] whose second half repeats the first one.
HeadScores repetition_scores(TwoWayPass& pass, const ModelSpec& spec, Communicator& comm,
                             std::span<const std::int32_t> tokens, std::int64_t n_first);

// RazorAttention's choice from both scores: gates of 1 for the `induction_share` of heads with the
// highest induction and the `echo_share` with the highest echo scores, 0 for the others.
std::vector<double> razor_gates(const CopyScores& scores, double induction_share = 0.14,
                                double echo_share = 0.01);

// Scores as gates: divided by the largest.
std::vector<double> gates_of(const HeadScores& scores);

}  // namespace longhaul
