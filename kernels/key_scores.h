// How much some queries attend to each cached key: what methods choose by that keep some tokens and
// drop others (SnapKV and its kin). Host memory only, and the same bits for any number of threads:
// products are summed along head_dim in order, each by itself, so a score does not depend on which
// keys and queries lie beside its own.
//
// Keys may lie with several ranks. Each scores its own; the sums of exp are merged over ranks, and
// each rank then knows its own keys' shares:
//
//   rank 0: score_keys -> sums ---\                  /---> masses of rank 0's keys
//   rank 1: score_keys -> sums ------ merged, alike ----> masses of rank 1's keys
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/kv_block.h"
#include "kernels/tensor.h"

namespace longhaul {

// exp(scores) summed up as sum * exp(max); of no scores (-inf, 0).
struct ExpSum {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
};
ExpSum merged(const ExpSum& a, const ExpSum& b);

// The observing queries of one KV head's group, and keys of that head.
struct KeyScoresArgs {
  KvBlockShape shape;
  float sm_scale = 1.0F;
  TensorView<const float, 3> q;               // [n_queries, gqa_group, head_dim], after RoPE
  std::span<const std::int64_t> q_positions;  // [n_queries]
  std::span<const KvBlockRef> blocks;         // a query sees keys at its position and before it,
                                              // of those its head's (KvBlockRef::seen_by)
};

struct KeyScores {
  std::int64_t n_queries = 0;
  std::int64_t gqa_group = 0;
  std::int64_t n_keys = 0;
  std::vector<float> scores = {};  // [n_queries, gqa_group, n_keys]; -inf where a key is not seen
  std::vector<ExpSum> sums = {};   // [n_queries, gqa_group], of these keys
};
// Throws kInvalidArgument for shapes that do not fit.
KeyScores score_keys(const KeyScoresArgs& args);

// Counts a key of value zero with these logits [gqa_group], not scaled, among all keys (as
// finish_attention does): of sums [n_queries, gqa_group]. Nothing where there are no logits.
void add_sink_logits(std::span<const float> sink_logits, std::span<ExpSum> all);

// For each query head and key the sum over queries of exp(score) / (all sums): [gqa_group, n_keys].
// `all` [n_queries, gqa_group] is of all keys there are, here and elsewhere.
std::vector<float> key_masses(const KeyScores& keys, std::span<const ExpSum> all);

// Adds the same, of all query heads of the group, to sums [n_keys]: query after query, so that it
// does not matter which queries come together.
void add_key_masses(const KeyScores& keys, std::span<const ExpSum> all, std::span<double> sums);

// The same of each query's keys from number first_keys[query] on alone; [n_queries].
void add_key_masses_from(const KeyScores& keys, std::span<const ExpSum> all,
                         std::span<const std::int64_t> first_keys, std::span<double> sums);

}  // namespace longhaul
