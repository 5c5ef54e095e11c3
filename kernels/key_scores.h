// How much some queries attend to each cached key: what methods choose by that keep some tokens and
// drop others (SnapKV and its kin). Queries, sums and masses are host memory on every device, the
// memory of blocks is the device's. The same bits for any number of threads: products are summed
// along head_dim in order, each by itself, so a score does not depend on which keys and queries lie
// beside its own. GPUs multiply and add in one rounding and have an exponential function of their
// own, so their scores and masses are CPUs' but for the last bits. Calls wait for the stream's
// work.
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

#include "base/device/device.h"
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
  KvBlockShape shape = {};
  float sm_scale = 1.0F;
  TensorView<const float, 3> q = {};  // [n_queries, gqa_group, head_dim], after RoPE; host memory
  std::span<const std::int64_t> q_positions = {};  // [n_queries]
  std::span<const KvBlockRef> blocks = {};         // a query sees keys at its position and before
                                                   // it, of those its head's (KvBlockRef::seen_by)
};

struct KeyScores {
  // What was asked. Queries, positions and blocks stay where they are as long as masses are asked
  // for: GPUs keep no scores, which would be more than all they are asked for, but make them anew.
  KeyScoresArgs of = {};
  std::int64_t n_queries = 0;
  std::int64_t gqa_group = 0;
  std::int64_t n_keys = 0;
  // [n_queries * gqa_group, n_keys]; -inf where a key is not seen. On CPUs; memory that goes back
  // to the system at once, for a text's scores grow chunk by chunk and would leave holes in the
  // heap.
  Tensor<float, 2> scores = {};
  std::vector<ExpSum> sums = {};  // [n_queries, gqa_group], of these keys
};
// Throws kInvalidArgument for shapes that do not fit, kUnsupported for what a GPU cannot read.
KeyScores score_keys(StreamRef stream, const KeyScoresArgs& args);

// Counts a key of value zero with these logits [gqa_group], not scaled, among all keys (as
// finish_attention does): of sums [n_queries, gqa_group]. Nothing where there are no logits.
void add_sink_logits(std::span<const float> sink_logits, std::span<ExpSum> all);

// For each query head and key the sum over queries of exp(score) / (all sums): [gqa_group, n_keys].
// `all` [n_queries, gqa_group] is of all keys there are, here and elsewhere.
std::vector<float> key_masses(StreamRef stream, const KeyScores& keys, std::span<const ExpSum> all);

// Adds the same, of all query heads of the group, to sums [n_keys]: query after query, so that it
// does not matter which queries come together. Where first_keys [n_queries] are said, of each
// query's keys from number first_keys[query] on alone.
void add_key_masses(StreamRef stream, const KeyScores& keys, std::span<const ExpSum> all,
                    std::span<double> sums, std::span<const std::int64_t> first_keys = {});

// --- For the devices' forms ---

// What each row's exponentials are held against, rows being queries and, in each, heads; of rows
// that saw nothing so that they add nothing.
struct KeyNormalisers {
  std::vector<float> maxima = {};
  std::vector<double> inverses = {};
};
// All rows' queries in one matrix, scaled: [n_rows, head_dim].
std::vector<float> scaled_rows(const KeyScoresArgs& args);

// One of the two results, the other one is empty.
struct KeyMassesArgs {
  const KeyScores& keys;
  const KeyNormalisers& rows;
  std::span<float> masses = {};  // [gqa_group, n_keys], of each query head
  std::span<double> sums = {};   // [n_keys], of the group; added to
  std::span<const std::int64_t> first_keys = {};
};

}  // namespace longhaul
