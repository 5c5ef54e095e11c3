// score_keys and key_masses on CPUs: scores of blocks and rows by threads, kept for the masses.
#include <algorithm>
#include <array>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"
#include "kernels/read_keys.h"

namespace longhaul::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

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
  KeyReader reader(shape, block.data, {0, block.n_tokens});
  for (std::int64_t d = 0; d < shape.head_dim; ++d)
    reader.read(d, std::span(keys).subspan(static_cast<std::size_t>(d) * n, n));
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
    kernels().key_products({.q = rows.data() + n_before * args.shape.head_dim,
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
  const RowExpSum found =
      kernels().exp_sum(scores.data(), static_cast<std::int64_t>(scores.size()));
  return {static_cast<double>(found.max), found.sum};
}

// Of each query head: [gqa_group, n_keys].
void masses_of_heads(const KeyMassesArgs& args) {
  const KeyScores& keys = args.keys;
  constexpr std::int64_t kTile = 1024;  // keys
  const std::int64_t n_tiles = (keys.n_keys + kTile - 1) / kTile;
  parallel_for(keys.gqa_group * n_tiles, [&](std::int64_t task) {
    const std::int64_t head = task / n_tiles;
    const std::int64_t begin = task % n_tiles * kTile;
    const std::int64_t end = std::min(begin + kTile, keys.n_keys);
    std::array<double, kTile> sums{};
    std::vector<float> maxima;
    std::vector<double> inverses;
    for (auto row = static_cast<std::size_t>(head); row < args.rows.maxima.size();
         row += static_cast<std::size_t>(keys.gqa_group)) {
      maxima.push_back(args.rows.maxima[row]);
      inverses.push_back(args.rows.inverses[row]);
    }
    kernels().add_exps({.scores = keys.scores.data() + head * keys.n_keys + begin,
                        .score_stride = keys.gqa_group * keys.n_keys,
                        .n_rows = keys.n_queries,
                        .maxima = maxima.data(),
                        .inverses = inverses.data(),
                        .sums = sums.data(),
                        .n = end - begin});
    for (std::int64_t i = begin; i < end; ++i) {
      args.masses[static_cast<std::size_t>(head * keys.n_keys + i)] =
          static_cast<float>(sums[static_cast<std::size_t>(i - begin)]);
    }
  });
}

// These keys' shares of neighbouring rows.
void add_rows(const KeyMassesArgs& args, Extent rows, Extent keys) {
  if (keys.empty()) return;
  const std::int64_t n_keys = args.keys.n_keys;
  kernels().add_exps({.scores = args.keys.scores.data() + rows.begin * n_keys + keys.begin,
                      .score_stride = n_keys,
                      .n_rows = rows.size(),
                      .maxima = args.rows.maxima.data() + rows.begin,
                      .inverses = args.rows.inverses.data() + rows.begin,
                      .sums = args.sums.data() + keys.begin,
                      .n = keys.size()});
}

}  // namespace

void score_keys(KeyScores& out) {
  const KeyScoresArgs& args = out.of;
  std::vector<std::int64_t> columns;
  std::int64_t n_keys = 0;
  for (const KvBlockRef& block : args.blocks) {
    columns.push_back(n_keys);
    n_keys += block.n_tokens;
  }
  const std::int64_t n_rows = out.n_queries * out.gqa_group;
  out.scores = Tensor<float, 2>({n_rows, out.n_keys});
  const std::vector<float> rows = scaled_rows(args);
  parallel_for(static_cast<std::int64_t>(args.blocks.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    score_block(args, rows, args.blocks[at], columns[at], out);
  });
  parallel_for(n_rows, [&](std::int64_t row) {
    out.sums[static_cast<std::size_t>(row)] =
        sum_of({out.scores.data() + row * out.n_keys, static_cast<std::size_t>(out.n_keys)});
  });
}

void key_masses(const KeyMassesArgs& args) {
  if (!args.masses.empty()) return masses_of_heads(args);
  const KeyScores& keys = args.keys;
  const std::int64_t n_rows = keys.n_queries * keys.gqa_group;
  parallel_rows(keys.n_keys, n_rows, [&](std::int64_t begin, std::int64_t end) {
    if (args.first_keys.empty()) return add_rows(args, {0, n_rows}, {begin, end});
    for (std::int64_t query = 0; query < keys.n_queries; ++query) {
      const std::int64_t first = args.first_keys[static_cast<std::size_t>(query)];
      const std::int64_t row = query * keys.gqa_group;
      add_rows(args, {row, row + keys.gqa_group}, {std::max(begin, first), end});
    }
  });
}

}  // namespace longhaul::cpu
