#include "kernels/key_scores.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/parallel.h"
#include "kernels/kv_block_check.h"
#include "kernels/read_keys.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// All rows of queries against one block, into the columns of its keys.
void score_block(const KeyScoresArgs& args, const KvBlockRef& block, std::int64_t column,
                 KeyScores& out) {
  const std::int64_t head_dim = args.shape.head_dim;
  const auto n = static_cast<std::size_t>(block.n_tokens);
  std::vector<float> keys(static_cast<std::size_t>(head_dim) * n);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    read_key_dim(args.shape, block.data, d, {0, block.n_tokens},
                 std::span(keys).subspan(static_cast<std::size_t>(d) * n, n));
  }
  for (std::int64_t query = 0; query < out.n_queries; ++query) {
    const std::int64_t n_seen = std::clamp<std::int64_t>(
        args.q_positions[static_cast<std::size_t>(query)] - block.first_position + 1, 0,
        block.n_tokens);
    for (std::int64_t head = 0; head < out.gqa_group; ++head) {
      float* row = out.scores.data() + (query * out.gqa_group + head) * out.n_keys + column;
      const float* q = args.q[query][head].data();
      std::fill(row, row + n, 0.0F);
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const float* k = keys.data() + static_cast<std::size_t>(d) * n;
        for (std::size_t i = 0; i < n; ++i) row[i] += q[d] * k[i];
      }
      for (std::size_t i = 0; i < n; ++i) row[i] *= args.sm_scale;
      std::fill(row + n_seen, row + n, kHidden);
    }
  }
}

ExpSum sum_of(std::span<const float> scores) {
  const float max = scores.empty() ? kHidden : *std::max_element(scores.begin(), scores.end());
  ExpSum result{static_cast<double>(max), 0};
  if (max == kHidden) return result;
  for (const float score : scores) result.sum += static_cast<double>(std::exp(score - max));
  return result;
}

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
  parallel_for(static_cast<std::int64_t>(args.blocks.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    score_block(args, args.blocks[at], columns[at], out);
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
  std::vector<float> masses(static_cast<std::size_t>(keys.gqa_group * keys.n_keys));
  constexpr std::int64_t kTile = 1024;  // keys
  const std::int64_t n_tiles = (keys.n_keys + kTile - 1) / kTile;
  parallel_for(keys.gqa_group * n_tiles, [&](std::int64_t task) {
    const std::int64_t head = task / n_tiles;
    const std::int64_t begin = task % n_tiles * kTile;
    const std::int64_t end = std::min(begin + kTile, keys.n_keys);
    std::array<double, kTile> sums{};
    for (std::int64_t query = 0; query < keys.n_queries; ++query) {
      const ExpSum& total = all[static_cast<std::size_t>(query * keys.gqa_group + head)];
      if (total.sum == 0) continue;
      const auto log_sum = static_cast<float>(total.max + std::log(total.sum));
      const float* row = keys.scores.data() + (query * keys.gqa_group + head) * keys.n_keys;
      for (std::int64_t i = begin; i < end; ++i)
        sums[static_cast<std::size_t>(i - begin)] +=
            static_cast<double>(std::exp(row[i] - log_sum));
    }
    for (std::int64_t i = begin; i < end; ++i) {
      masses[static_cast<std::size_t>(head * keys.n_keys + i)] =
          static_cast<float>(sums[static_cast<std::size_t>(i - begin)]);
    }
  });
  return masses;
}

void add_key_masses(const KeyScores& keys, std::span<const ExpSum> all, std::span<double> sums) {
  const std::int64_t n_rows = keys.n_queries * keys.gqa_group;
  require_equal("add_key_masses", "sums of exp", static_cast<std::int64_t>(all.size()), n_rows);
  require_equal("add_key_masses", "sums", static_cast<std::int64_t>(sums.size()), keys.n_keys);
  parallel_rows(keys.n_keys, n_rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < n_rows; ++row) {
      const ExpSum& total = all[static_cast<std::size_t>(row)];
      if (total.sum == 0) continue;
      const auto log_sum = static_cast<float>(total.max + std::log(total.sum));
      const float* scores = keys.scores.data() + row * keys.n_keys;
      for (std::int64_t i = begin; i < end; ++i)
        sums[static_cast<std::size_t>(i)] += static_cast<double>(std::exp(scores[i] - log_sum));
    }
  });
}

}  // namespace longhaul
