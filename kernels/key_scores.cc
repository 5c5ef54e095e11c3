#include "kernels/key_scores.h"

#include <algorithm>
#include <cmath>

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(Device device, const KeyScoresArgs& args) {
  check_kv_block_shape("score_keys", args.shape);
  require_cpu_for_groups("score_keys", device, args.shape);
  require_equal("score_keys", "head_dim of q", args.q.dim(2), args.shape.head_dim);
  require_equal("score_keys", "positions of q", static_cast<std::int64_t>(args.q_positions.size()),
                args.q.dim(0));
}

KeyNormalisers normalisers_of(const KeyScores& keys, std::span<const ExpSum> all) {
  require_equal("key_masses", "sums of exp", static_cast<std::int64_t>(all.size()),
                keys.n_queries * keys.gqa_group);
  KeyNormalisers rows;
  for (const ExpSum& sum : all) {
    const bool is_empty = sum.sum == 0;
    rows.maxima.push_back(is_empty ? std::numeric_limits<float>::infinity()
                                   : static_cast<float>(sum.max));
    rows.inverses.push_back(is_empty ? 0 : 1 / sum.sum);
  }
  return rows;
}

}  // namespace

ExpSum merged(const ExpSum& a, const ExpSum& b) {
  if (b.sum == 0) return a;
  if (a.sum == 0) return b;
  const double max = std::max(a.max, b.max);
  return {max, a.sum * std::exp(a.max - max) + b.sum * std::exp(b.max - max)};
}

void add_sink_logits(std::span<const float> sink_logits, std::span<ExpSum> all) {
  if (sink_logits.empty()) return;
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = merged(all[i], {static_cast<double>(sink_logits[i % sink_logits.size()]), 1});
}

std::vector<float> scaled_rows(const KeyScoresArgs& args) {
  std::vector<float> rows;
  rows.reserve(static_cast<std::size_t>(args.q.size()));
  for (std::int64_t query = 0; query < args.q.dim(0); ++query) {
    for (std::int64_t head = 0; head < args.q.dim(1); ++head) {
      const float* q = args.q[query][head].data();
      for (std::int64_t d = 0; d < args.shape.head_dim; ++d) rows.push_back(q[d] * args.sm_scale);
    }
  }
  return rows;
}

KeyScores score_keys(StreamRef stream, const KeyScoresArgs& args) {
  check(stream.device(), args);
  KeyScores out{.of = args, .n_queries = args.q.dim(0), .gqa_group = args.q.dim(1)};
  for (const KvBlockRef& block : args.blocks) out.n_keys += block.n_tokens;
  out.sums.resize(static_cast<std::size_t>(out.n_queries * out.gqa_group));
  run_on(stream, cpu::score_keys, cuda::score_keys, out);
  return out;
}

std::vector<float> key_masses(StreamRef stream, const KeyScores& keys,
                              std::span<const ExpSum> all) {
  const KeyNormalisers rows = normalisers_of(keys, all);
  std::vector<float> masses(static_cast<std::size_t>(keys.gqa_group * keys.n_keys));
  if (masses.empty()) return masses;
  run_on(stream, cpu::key_masses, cuda::key_masses,
         KeyMassesArgs{.keys = keys, .rows = rows, .masses = masses});
  return masses;
}

void add_key_masses(StreamRef stream, const KeyScores& keys, std::span<const ExpSum> all,
                    std::span<double> sums, std::span<const std::int64_t> first_keys) {
  const KeyNormalisers rows = normalisers_of(keys, all);
  require_equal("add_key_masses", "sums", static_cast<std::int64_t>(sums.size()), keys.n_keys);
  if (!first_keys.empty())
    require_equal("add_key_masses", "first keys", static_cast<std::int64_t>(first_keys.size()),
                  keys.n_queries);
  if (sums.empty()) return;
  run_on(stream, cpu::key_masses, cuda::key_masses,
         KeyMassesArgs{.keys = keys, .rows = rows, .sums = sums, .first_keys = first_keys});
}

}  // namespace longhaul
