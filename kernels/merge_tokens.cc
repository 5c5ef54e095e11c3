#include "kernels/merge_tokens.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/cpu/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

// Of bf16, as the published inference code has it.
constexpr double kWeightEps = 0.0078125;

void check(const MergeTokensArgs& args) {
  require(args.window >= 1, fmt::format("merge_tokens: a window of {} tokens", args.window));
  for (int i = 0; i < 3; ++i)
    require_equal("merge_tokens", "a dimension of v", args.v.dim(i), args.k.dim(i));
  require_equal("merge_tokens", "rows of weights", args.weights.dim(0), args.k.dim(0));
  require_equal("merge_tokens", "heads of weights", args.weights.dim(1), args.k.dim(1));
  const std::int64_t n_before = args.before.n();
  require(n_before <= args.first_position, "merge_tokens: more tokens before than there are");
  if (n_before == 0) return;
  require_equal("merge_tokens", "heads before", args.before.k.dim(1), args.k.dim(1));
  require_equal("merge_tokens", "head_dim before", args.before.k.dim(2), args.k.dim(2));
}

// One KV head, whose rows are numbered from the first new one on: those before have numbers below
// zero.
class MergedHead {
 public:
  MergedHead(const MergeTokensArgs& args, std::int64_t kv_head)
      : args_(args),
        kv_head_(kv_head),
        head_dim_(args.k.dim(2)),
        k_sum_(static_cast<std::size_t>(head_dim_)),
        v_sum_(k_sum_.size()) {}

  // Last row first: a row is read as it was by those behind it.
  void merge() {
    for (std::int64_t row = args_.k.dim(0) - 1; row >= 0; --row) {
      const std::int64_t first = first_of(row);
      if (first < row) write_mean(first, row);
      args_.k[row][kv_head_].data()[head_dim_ - 1] = 0.0F;
    }
  }

 private:
  const float* k(std::int64_t row) const {
    return row >= 0 ? args_.k[row][kv_head_].data()
                    : args_.before.k[args_.before.n() + row][kv_head_].data();
  }
  const float* v(std::int64_t row) const {
    return row >= 0 ? args_.v[row][kv_head_].data()
                    : args_.before.v[args_.before.n() + row][kv_head_].data();
  }
  double weight(std::int64_t row) const {
    return static_cast<double>(row >= 0 ? args_.weights[row][kv_head_]
                                        : args_.before.weights[args_.before.n() + row][kv_head_]);
  }
  // The first row of the window of the row's slot.
  std::int64_t first_of(std::int64_t row) const {
    std::int64_t first = row;
    while (row - first + 1 < args_.window &&
           merges_into_slot(k(first)[head_dim_ - 1], args_.init_val, args_.first_position + first))
      --first;
    require(first >= -args_.before.n(), "merge_tokens: tokens before the new ones are missing");
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
    write(k_sum_, sum, args_.k[row][kv_head_].data());
    write(v_sum_, sum, args_.v[row][kv_head_].data());
  }
  static void add(std::span<double> sums, double weight, const float* x) {
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(x[d]);
  }
  static void write(std::span<const double> sums, double of, float* x) {
    for (std::size_t d = 0; d < sums.size(); ++d) x[d] = static_cast<float>(sums[d] / of);
  }

  const MergeTokensArgs& args_;
  std::int64_t kv_head_;
  std::int64_t head_dim_;
  std::vector<double> k_sum_;
  std::vector<double> v_sum_;
};

}  // namespace

std::vector<float> merge_weights(const TensorView<const float, 3>& q, std::int64_t n_kv_heads,
                                 double init_val) {
  const std::int64_t group = n_kv_heads == 0 ? 0 : q.dim(1) / n_kv_heads;
  require_equal("merge_weights", "query heads", group * n_kv_heads, q.dim(1));
  std::vector<float> weights;
  weights.reserve(static_cast<std::size_t>(q.dim(0) * n_kv_heads));
  for (std::int64_t row = 0; row < q.dim(0); ++row) {
    for (std::int64_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
      double sum = 0;
      for (std::int64_t g = 0; g < group; ++g)
        sum += static_cast<double>(q[row][kv_head * group + g][q.dim(2) - 1]);
      const double logit = sum / static_cast<double>(group) + init_val;
      weights.push_back(static_cast<float>(1 / (1 + std::exp(-logit)) + kWeightEps));
    }
  }
  return weights;
}

void merge_tokens(const MergeTokensArgs& args) {
  check(args);
  const std::int64_t n_products = args.k.dim(0) * args.window * 2 * args.k.dim(2);
  parallel_rows(args.k.dim(1), n_products, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t kv_head = begin; kv_head < end; ++kv_head) MergedHead(args, kv_head).merge();
  });
}

void zero_last_elements(const TensorView<float, 3>& x) {
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    for (std::int64_t head = 0; head < x.dim(1); ++head) x[row][head][x.dim(2) - 1] = 0.0F;
  }
}

}  // namespace longhaul
