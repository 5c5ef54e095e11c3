// Merging of tokens on CPUs: heads by threads.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

// One KV head of an item, whose rows are numbered from the first new one on: those before have
// numbers below zero.
class MergedHead {
 public:
  MergedHead(const MergeTokensArgs& args, const MergeTokensItem& item, std::int64_t kv_head)
      : args_(args),
        item_(item),
        kv_head_(kv_head),
        head_dim_(item.k.dim(2)),
        k_sum_(static_cast<std::size_t>(head_dim_)),
        v_sum_(k_sum_.size()) {}

  // Last row first: a row is read as it was by those behind it.
  void merge() {
    for (std::int64_t row = item_.k.dim(0) - 1; row >= 0; --row) {
      const std::int64_t first = first_of(row);
      if (first < row) write_mean(first, row);
      item_.k[row][kv_head_].data()[head_dim_ - 1] = 0.0F;
    }
  }

 private:
  const float* k(std::int64_t row) const {
    return row >= 0 ? item_.k[row][kv_head_].data()
                    : item_.before.k[item_.before.n() + row][kv_head_].data();
  }
  const float* v(std::int64_t row) const {
    return row >= 0 ? item_.v[row][kv_head_].data()
                    : item_.before.v[item_.before.n() + row][kv_head_].data();
  }
  double weight(std::int64_t row) const {
    return static_cast<double>(row >= 0 ? item_.weights[row][kv_head_]
                                        : item_.before.weights[item_.before.n() + row][kv_head_]);
  }
  // The first row of the window of the row's slot.
  std::int64_t first_of(std::int64_t row) const {
    std::int64_t first = row;
    while (row - first + 1 < args_.window &&
           merges_into_slot(k(first)[head_dim_ - 1], args_.init_val, item_.first_position + first))
      --first;
    return first;
  }
  void write_mean(std::int64_t first, std::int64_t row) {
    std::fill(k_sum_.begin(), k_sum_.end(), 0.0);
    std::fill(v_sum_.begin(), v_sum_.end(), 0.0);
    double sum = 0;
    for (std::int64_t from = first; from <= row; ++from) {
      const double w = weight(from);
      sum += w;
      add(k_sum_, w, k(from));
      add(v_sum_, w, v(from));
    }
    write(k_sum_, sum, item_.k[row][kv_head_].data());
    write(v_sum_, sum, item_.v[row][kv_head_].data());
  }
  static void add(std::span<double> sums, double weight, const float* x) {
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(x[d]);
  }
  static void write(std::span<const double> sums, double of, float* x) {
    for (std::size_t d = 0; d < sums.size(); ++d) x[d] = static_cast<float>(sums[d] / of);
  }

  const MergeTokensArgs& args_;
  const MergeTokensItem& item_;
  std::int64_t kv_head_;
  std::int64_t head_dim_;
  std::vector<double> k_sum_;
  std::vector<double> v_sum_;
};

}  // namespace

void merge_decisions(const MergeDecisionsArgs& args) {
  auto merges = args.merges.begin();
  for (std::int64_t row = 0; row < args.k.dim(0); ++row) {
    const std::int64_t position = args.positions[static_cast<std::size_t>(row)];
    for (std::int64_t head = 0; head < args.k.dim(1); ++head) {
      const float last = args.k[row][head][args.k.dim(2) - 1];
      *merges++ = merges_into_slot(last, args.init_val, position) ? 1 : 0;
    }
  }
}

void merge_weights(const MergeWeightsArgs& args) {
  const std::int64_t n_kv_heads = args.weights.dim(1);
  const std::int64_t group = n_kv_heads == 0 ? 0 : args.q.dim(1) / n_kv_heads;
  for (std::int64_t row = 0; row < args.q.dim(0); ++row) {
    for (std::int64_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
      double sum = 0;
      for (std::int64_t g = 0; g < group; ++g)
        sum += static_cast<double>(args.q[row][kv_head * group + g][args.q.dim(2) - 1]);
      const double logit = sum / static_cast<double>(group) + args.init_val;
      args.weights[row][kv_head] = static_cast<float>(1 / (1 + std::exp(-logit)) + kMergeWeightEps);
    }
  }
}

void merge_tokens(const MergeTokensArgs& args) {
  if (args.items.empty()) return;
  const std::int64_t n_kv_heads = args.items.front().k.dim(1);
  std::int64_t most_rows = 0;
  for (const MergeTokensItem& item : args.items) most_rows = std::max(most_rows, item.k.dim(0));
  const std::int64_t n_products = most_rows * args.window * 2 * args.items.front().k.dim(2);
  parallel_rows(static_cast<std::int64_t>(args.items.size()) * n_kv_heads, n_products,
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t i = begin; i < end; ++i) {
                    const auto item = static_cast<std::size_t>(i / n_kv_heads);
                    MergedHead(args, args.items[item], i % n_kv_heads).merge();
                  }
                });
}

void zero_last_elements(const TensorView<float, 3>& x) {
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    for (std::int64_t head = 0; head < x.dim(1); ++head) x[row][head][x.dim(2) - 1] = 0.0F;
  }
}

}  // namespace longhaul::cpu
