// top_k on CPUs: a heap of the best so far for each row.
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

struct Candidate {
  float logit;
  std::int32_t id;
};

// The order of the result: higher logit first, equal logits by ascending id.
bool stands_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// A heap of the best k so far with the worst of them on top; later ids lose ties, so an equal logit
// never enters.
std::vector<Candidate> best_of(const float* logits, std::int64_t vocab_size, std::int64_t k) {
  std::vector<Candidate> heap;
  heap.reserve(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < k; ++i) heap.push_back({logits[i], static_cast<std::int32_t>(i)});
  std::make_heap(heap.begin(), heap.end(), stands_before);
  for (std::int64_t i = k; i < vocab_size; ++i) {
    if (logits[i] > heap.front().logit) {
      std::pop_heap(heap.begin(), heap.end(), stands_before);
      heap.back() = {logits[i], static_cast<std::int32_t>(i)};
      std::push_heap(heap.begin(), heap.end(), stands_before);
    }
  }
  std::sort_heap(heap.begin(), heap.end(), stands_before);
  return heap;
}

void top_k_row(const TopKArgs& args, std::int64_t row) {
  const float* logits = args.logits[row].data();
  const std::int64_t vocab_size = args.logits.dim(1);
  const RowStatistics statistics = kernels().row_statistics(logits, vocab_size);
  if (statistics.has_nan) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("top_k: row {} of the logits has NaN; the model's weights or its "
                            "numerics are broken",
                            row));
  }
  if (!args.log_sum_exp.empty()) {
    args.log_sum_exp[static_cast<std::size_t>(row)] =
        static_cast<float>(static_cast<double>(statistics.max) + std::log(statistics.sum_of_exp));
  }
  const std::int64_t k = args.ids.dim(1);
  const auto ids = args.ids[row];
  const auto values = args.values[row];
  if (k == 1) {
    ids[0] = static_cast<std::int32_t>(kernels().find_first(logits, vocab_size, statistics.max));
    values[0] = statistics.max;
    return;
  }
  const std::vector<Candidate> best = best_of(logits, vocab_size, k);
  for (std::int64_t i = 0; i < k; ++i) {
    ids[i] = best[static_cast<std::size_t>(i)].id;
    values[i] = best[static_cast<std::size_t>(i)].logit;
  }
}

}  // namespace

void top_k(const TopKArgs& args) {
  parallel_for(args.logits.dim(0), [&](std::int64_t row) { top_k_row(args, row); });
}

}  // namespace longhaul::cpu
