// compensate on CPUs: an item at a time by each thread, its tokens and queries in their order.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"
#include "kernels/read_keys.h"

namespace longhaul::cpu {
namespace {

// Lets tokens of one item go, in the order of their positions.
class Leaving {
 public:
  Leaving(const KvBlockShape& shape, const CompensateItem& item) : shape_(shape), item_(item) {
    const auto head_dim = static_cast<std::size_t>(shape.head_dim);
    item.sums->k.resize(head_dim);
    item.sums->v.resize(head_dim);
    value_.resize(head_dim);
  }

  // Until all are gone that the query at this position does not see.
  void until(std::int64_t position) {
    const std::int64_t n = n_gone(item_, position);
    while (item_.sums->n < n) let_go(item_.sink + item_.sums->n);
  }

 private:
  void let_go(std::int64_t position) {
    while (block_ < item_.blocks.size() &&
           position >= item_.blocks[block_].first_position + item_.blocks[block_].n_tokens)
      ++block_;
    require(block_ < item_.blocks.size() && position >= item_.blocks[block_].first_position,
            "compensate: a token that goes is not in the cache");
    const KvBlockRef& block = item_.blocks[block_];
    if (read_ != block.data) {
      read_ = block.data;
      const auto n = static_cast<std::size_t>(block.n_tokens);
      keys_.resize(static_cast<std::size_t>(shape_.head_dim) * n);
      KeyReader reader(shape_, block.data, {0, block.n_tokens});
      for (std::int64_t d = 0; d < shape_.head_dim; ++d)
        reader.read(d, std::span(keys_).subspan(static_cast<std::size_t>(d) * n, n));
    }
    const std::int64_t slot = position - block.first_position;
    read_value(shape_, block.data, slot, value_);
    for (std::size_t d = 0; d < value_.size(); ++d) {
      item_.sums->k[d] += static_cast<double>(
          keys_[d * static_cast<std::size_t>(block.n_tokens) + static_cast<std::size_t>(slot)]);
      item_.sums->v[d] += static_cast<double>(value_[d]);
    }
    ++item_.sums->n;
  }

  const KvBlockShape& shape_;
  const CompensateItem& item_;
  std::size_t block_ = 0;
  const std::byte* read_ = nullptr;  // the block whose keys are at hand
  std::vector<float> keys_;          // [head_dim, n_tokens]
  std::vector<float> value_;
};

// Merges one key with this logit and the mean value into one head's state.
void add_key(const GoneSums& sums, double logit, float* o, float& m, float& l) {
  const double before = static_cast<double>(m);
  const double reference = std::max(before, logit);
  const bool is_empty = m == -std::numeric_limits<float>::infinity();
  const double keeps = is_empty ? 0 : std::exp(before - reference);
  const double weight = std::exp(logit - reference);
  const double of_value = weight / static_cast<double>(sums.n);
  for (std::size_t d = 0; d < sums.v.size(); ++d)
    o[d] = static_cast<float>(static_cast<double>(o[d]) * keeps + of_value * sums.v[d]);
  l = static_cast<float>(static_cast<double>(l) * keeps + weight);
  m = static_cast<float>(reference);
}

void compensate_item(const CompensateArgs& args, const CompensateItem& item) {
  Leaving leaving(args.shape, item);
  const GoneSums& sums = *item.sums;
  for (std::int64_t i = 0; i < item.q.dim(0); ++i) {
    leaving.until(item.q_positions[static_cast<std::size_t>(i)]);
    if (sums.n == 0) continue;
    const auto n = static_cast<double>(sums.n);
    for (std::int64_t head = 0; head < item.q.dim(1); ++head) {
      const float* q = item.q[i][head].data();
      double product = 0;
      for (std::size_t d = 0; d < sums.k.size(); ++d)
        product += static_cast<double>(q[d]) * sums.k[d];
      add_key(sums, static_cast<double>(args.sm_scale) * product / n + std::log(n),
              item.state.o[i][head].data(), item.state.m[i][head], item.state.l[i][head]);
    }
  }
  leaving.until(item.next_position);
}

}  // namespace

void compensate(const CompensateArgs& args) {
  parallel_for(static_cast<std::int64_t>(args.items.size()), [&](std::int64_t i) {
    compensate_item(args, args.items[static_cast<std::size_t>(i)]);
  });
}

}  // namespace longhaul::cpu
