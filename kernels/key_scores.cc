#include "kernels/key_scores.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/kv_block_check.h"
#include "kernels/read_keys.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// All rows' queries in one matrix, scaled: [n_rows, head_dim].
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

// [head_dim, stride] floats of a block's keys.
struct BlockKeys {
  const float* keys = nullptr;
  std::int64_t stride = 0;
};
BlockKeys keys_of(const KvBlockShape& shape, const KvBlockRef& block) {
  if (shape.k_type == KvType::kF32)  // as attention reads them
    return {reinterpret_cast<const float*>(block.data), shape.block_size};
  thread_local std::vector<float> keys;
  const auto n = static_cast<std::size_t>(block.n_tokens);
  keys.resize(static_cast<std::size_t>(shape.head_dim) * n);
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    read_key_dim(shape, block.data, d, {0, block.n_tokens},
                 std::span(keys).subspan(static_cast<std::size_t>(d) * n, n));
  }
  return {keys.data(), block.n_tokens};
}

// All rows of queries against one block, into the columns of its keys.
void score_block(const KeyScoresArgs& args, std::span<const float> rows, const KvBlockRef& block,
                 std::int64_t column, KeyScores& out) {
  // Queries before the first that sees the block's first key are spared the product.
  const auto first = std::find_if(args.q_positions.begin(), args.q_positions.end(),
                                  [&](std::int64_t p) { return p >= block.first_position; });
  const std::int64_t n_before = (first - args.q_positions.begin()) * out.gqa_group;
  const std::int64_t n_rows = out.n_queries * out.gqa_group;
  if (n_before < n_rows && block.n_tokens > 0) {
    const BlockKeys keys = keys_of(args.shape, block);
    cpu::kernels().key_products({.q = rows.data() + n_before * args.shape.head_dim,
                                 .n_rows = n_rows - n_before,
                                 .head_dim = args.shape.head_dim,
                                 .keys = keys.keys,
                                 .key_stride = keys.stride,
                                 .n_keys = block.n_tokens,
                                 .scores = out.scores.data() + n_before * out.n_keys + column,
                                 .score_stride = out.n_keys});
  }
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const std::int64_t position = args.q_positions[static_cast<std::size_t>(row / out.gqa_group)];
    const std::int64_t n_seen =
        std::clamp<std::int64_t>(position - block.first_position + 1, 0, block.n_tokens);
    float* scores = out.scores.data() + row * out.n_keys + column;
    std::fill(scores + n_seen, scores + block.n_tokens, kHidden);
    if (block.seen_by == nullptr) continue;
    for (std::int64_t i = 0; i < n_seen; ++i) {
      if ((block.seen_by[i] >> (row % out.gqa_group) & 1) == 0) scores[i] = kHidden;
    }
  }
}

ExpSum sum_of(std::span<const float> scores) {
  const cpu::RowExpSum found =
      cpu::kernels().exp_sum(scores.data(), static_cast<std::int64_t>(scores.size()));
  return {static_cast<double>(found.max), found.sum};
}

// What each row's exponentials are held against; of rows that saw nothing so that they add nothing.
struct Normalisers {
  std::vector<float> maxima = {};
  std::vector<double> inverses = {};
  void add(const ExpSum& sum) {
    const bool is_empty = sum.sum == 0;
    maxima.push_back(is_empty ? -kHidden : static_cast<float>(sum.max));
    inverses.push_back(is_empty ? 0 : 1 / sum.sum);
  }
};

void check(const KeyScoresArgs& args) {
  check_kv_block_shape("score_keys", args.shape);
  require_equal("score_keys", "head_dim of q", args.q.dim(2), args.shape.head_dim);
  require_equal("score_keys", "positions of q", static_cast<std::int64_t>(args.q_positions.size()),
                args.q.dim(0));
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

KeyScores score_keys(const KeyScoresArgs& args) {
  check(args);
  KeyScores out{.n_queries = args.q.dim(0), .gqa_group = args.q.dim(1)};
  std::vector<std::int64_t> columns;
  for (const KvBlockRef& block : args.blocks) {
    columns.push_back(out.n_keys);
    out.n_keys += block.n_tokens;
  }
  const std::int64_t n_rows = out.n_queries * out.gqa_group;
  out.scores.resize(static_cast<std::size_t>(n_rows * out.n_keys));
  out.sums.resize(static_cast<std::size_t>(n_rows));
  const std::vector<float> rows = scaled_rows(args);
  parallel_for(static_cast<std::int64_t>(args.blocks.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    score_block(args, rows, args.blocks[at], columns[at], out);
  });
  parallel_for(n_rows, [&](std::int64_t row) {
    out.sums[static_cast<std::size_t>(row)] =
        sum_of(std::span(out.scores)
                   .subspan(static_cast<std::size_t>(row * out.n_keys),
                            static_cast<std::size_t>(out.n_keys)));
  });
  return out;
}

std::vector<float> key_masses(const KeyScores& keys, std::span<const ExpSum> all) {
  require_equal("key_masses", "sums", static_cast<std::int64_t>(all.size()),
                keys.n_queries * keys.gqa_group);
  const auto group = static_cast<std::size_t>(keys.gqa_group);
  std::vector<float> masses(group * static_cast<std::size_t>(keys.n_keys));
  constexpr std::int64_t kTile = 1024;  // keys
  const std::int64_t n_tiles = (keys.n_keys + kTile - 1) / kTile;
  parallel_for(keys.gqa_group * n_tiles, [&](std::int64_t task) {
    const std::int64_t head = task / n_tiles;
    const std::int64_t begin = task % n_tiles * kTile;
    const std::int64_t end = std::min(begin + kTile, keys.n_keys);
    std::array<double, kTile> sums{};
    Normalisers of_head;
    for (auto i = static_cast<std::size_t>(head); i < all.size(); i += group) of_head.add(all[i]);
    cpu::kernels().add_exps({.scores = keys.scores.data() + head * keys.n_keys + begin,
                             .score_stride = keys.gqa_group * keys.n_keys,
                             .n_rows = keys.n_queries,
                             .maxima = of_head.maxima.data(),
                             .inverses = of_head.inverses.data(),
                             .sums = sums.data(),
                             .n = end - begin});
    for (std::int64_t i = begin; i < end; ++i) {
      masses[static_cast<std::size_t>(head * keys.n_keys + i)] =
          static_cast<float>(sums[static_cast<std::size_t>(i - begin)]);
    }
  });
  return masses;
}

namespace {

Normalisers normalisers_of(const KeyScores& keys, std::span<const ExpSum> all,
                           std::span<const double> sums) {
  require_equal("add_key_masses", "sums of exp", static_cast<std::int64_t>(all.size()),
                keys.n_queries * keys.gqa_group);
  require_equal("add_key_masses", "sums", static_cast<std::int64_t>(sums.size()), keys.n_keys);
  Normalisers rows;
  for (const ExpSum& sum : all) rows.add(sum);
  return rows;
}

}  // namespace

void add_key_masses_from(const KeyScores& keys, std::span<const ExpSum> all,
                         std::span<const std::int64_t> first_keys, std::span<double> sums) {
  require_equal("add_key_masses_from", "first keys", static_cast<std::int64_t>(first_keys.size()),
                keys.n_queries);
  const Normalisers rows = normalisers_of(keys, all, sums);
  parallel_rows(keys.n_keys, keys.n_queries, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t query = 0; query < keys.n_queries; ++query) {
      const std::int64_t first = std::max(begin, first_keys[static_cast<std::size_t>(query)]);
      if (first >= end) continue;
      const std::int64_t row = query * keys.gqa_group;
      cpu::kernels().add_exps({.scores = keys.scores.data() + row * keys.n_keys + first,
                               .score_stride = keys.n_keys,
                               .n_rows = keys.gqa_group,
                               .maxima = rows.maxima.data() + row,
                               .inverses = rows.inverses.data() + row,
                               .sums = sums.data() + first,
                               .n = end - first});
    }
  });
}

void add_key_masses(const KeyScores& keys, std::span<const ExpSum> all, std::span<double> sums) {
  const std::int64_t n_rows = keys.n_queries * keys.gqa_group;
  const Normalisers rows = normalisers_of(keys, all, sums);
  parallel_rows(keys.n_keys, n_rows, [&](std::int64_t begin, std::int64_t end) {
    cpu::kernels().add_exps({.scores = keys.scores.data() + begin,
                             .score_stride = keys.n_keys,
                             .n_rows = n_rows,
                             .maxima = rows.maxima.data(),
                             .inverses = rows.inverses.data(),
                             .sums = sums.data() + begin,
                             .n = end - begin});
  });
}

}  // namespace longhaul
