// top_k: a thread block for each row finds the k-th best by radix selection on keys of 64 bits that
// no two logits share (higher logit first, then lower id), 8 bits a pass, then gathers what is not
// behind it. The few ids are sorted on the host, which needs them next anyway.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/softmax_state.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kRowThreads = 1024;
constexpr int kDigits = 256;

struct Candidate {
  float logit;
  std::int32_t id;
};

struct Row {
  float max;
  std::int32_t has_nan;
  double sum_of_exp;  // of logit - max
};

struct TopK {
  const float* logits;  // [n_rows, vocab_size]
  std::int64_t stride;
  std::int64_t vocab_size;
  std::int64_t k;
  Row* rows;              // [n_rows]
  Candidate* candidates;  // [n_rows, k], in any order
  bool operator==(const TopK&) const = default;
};

struct Shared {
  double sums[kRowThreads / kWarp];
  float maxima[kRowThreads / kWarp];
  int nans[kRowThreads / kWarp];
  std::int32_t counts[kDigits];
  std::uint64_t prefix;  // of the k-th largest key, as far as it is known
  std::int32_t wanted;   // how many keys with that prefix are among the best
  std::int32_t n_found;
};

// Larger keys stand before smaller ones; -0 is 0.
__device__ std::uint64_t key_of(float logit, std::int64_t id) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  const std::uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(ordered) << 32U |
         (0xffffffffU - static_cast<std::uint32_t>(id));
}

__device__ Row statistics(const float* logits, std::int64_t n, Shared& shared) {
  float max = minus_infinity();
  int has_nan = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kRowThreads) {
    max = Larger()(logits[i], max);
    if (logits[i] != logits[i]) has_nan = 1;
  }
  max = reduce_block(max, Larger(), shared.maxima);
  has_nan = reduce_block(has_nan, Larger(), shared.nans);
  const float reference = max == minus_infinity() ? 0.0F : max;
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < n; i += kRowThreads) {
    sum += static_cast<double>(expf(logits[i] - reference));
  }
  return {max, has_nan, reduce_block(sum, Add(), shared.sums)};
}

// Sets shared.prefix to the k-th largest key.
__device__ void select(const float* logits, std::int64_t n, std::int64_t k, Shared& shared) {
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.wanted = static_cast<std::int32_t>(k);
  }
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (threadIdx.x < kDigits) shared.counts[threadIdx.x] = 0;
    __syncthreads();  // counts are cleared, prefix is set, before they are used
    const std::uint64_t prefix = shared.prefix;
    for (std::int64_t i = threadIdx.x; i < n; i += kRowThreads) {
      const std::uint64_t key = key_of(logits[i], i);
      // Of the bits above this digit; a shift by 64 would be undefined.
      if (shift == 56 || key >> (shift + 8) == prefix >> (shift + 8)) {
        atomicAdd(&shared.counts[key >> shift & 0xffU], 1);
      }
    }
    __syncthreads();  // all keys are counted before the digit is chosen
    if (threadIdx.x == 0) {
      int digit = kDigits - 1;
      while (shared.counts[digit] < shared.wanted) shared.wanted -= shared.counts[digit--];
      shared.prefix |= static_cast<std::uint64_t>(digit) << shift;
    }
    __syncthreads();  // the digit is chosen before the counts are cleared or the key is used
  }
}

// grid.x is the row. Shared: one Shared.
__global__ void top_k_kernel(TopK t) {
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
  const std::int64_t row = blockIdx.x;
  const float* logits = t.logits + row * t.stride;
  const Row found = statistics(logits, t.vocab_size, shared);
  if (threadIdx.x == 0) {
    t.rows[row] = found;
    shared.n_found = 0;
  }
  if (found.has_nan != 0) return;
  select(logits, t.vocab_size, t.k, shared);
  const std::uint64_t last = shared.prefix;
  for (std::int64_t i = threadIdx.x; i < t.vocab_size; i += kRowThreads) {
    if (key_of(logits[i], i) < last) continue;
    const std::int32_t at = atomicAdd(&shared.n_found, 1);
    t.candidates[row * t.k + at] = {logits[i], static_cast<std::int32_t>(i)};
  }
}

void finish_row(const TopKArgs& args, std::int64_t row, const Row& found, Candidate* candidates) {
  const std::int64_t k = args.ids.dim(1);
  if (found.has_nan != 0) {
    throw Error(ErrorCode::kCorruptData,
                "top_k: row " + std::to_string(row) +
                    " of the logits has NaN; the model's weights or its numerics are broken");
  }
  if (!args.log_sum_exp.empty()) {
    args.log_sum_exp[static_cast<std::size_t>(row)] =
        std::isinf(found.max)
            ? found.max
            : static_cast<float>(static_cast<double>(found.max) + std::log(found.sum_of_exp));
  }
  std::sort(candidates, candidates + k, [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  for (std::int64_t i = 0; i < k; ++i) {
    args.ids[row][i] = candidates[i].id;
    args.values[row][i] = candidates[i].logit;
  }
}

}  // namespace

// ids, values and log_sum_exp are host memory.
void top_k(Stream& stream, const TopKArgs& args) {
  const auto n_rows = static_cast<std::size_t>(args.logits.dim(0));
  if (n_rows == 0) return;
  const std::size_t n_candidates = n_rows * static_cast<std::size_t>(args.ids.dim(1));
  const std::size_t bytes = n_rows * sizeof(Row) + n_candidates * sizeof(Candidate);
  std::byte* memory = stream.scratch(bytes);
  const TopK t = {.logits = args.logits.data(),
                  .stride = args.logits.stride(0),
                  .vocab_size = args.logits.dim(1),
                  .k = args.ids.dim(1),
                  .rows = reinterpret_cast<Row*>(memory),
                  .candidates = reinterpret_cast<Candidate*>(memory + n_rows * sizeof(Row))};
  launch(stream, "top_k", top_k_kernel,
         {.x = args.logits.dim(0), .block = kRowThreads, .shared_bytes = sizeof(Shared)}, t);
  const std::byte* results = stream.download(memory, bytes);
  const auto* rows = reinterpret_cast<const Row*>(results);
  const auto* found = reinterpret_cast<const Candidate*>(results + n_rows * sizeof(Row));
  std::vector<Candidate> candidates(found, found + n_candidates);
  for (std::size_t row = 0; row < n_rows; ++row) {
    finish_row(args, static_cast<std::int64_t>(row), rows[row],
               candidates.data() + row * static_cast<std::size_t>(t.k));
  }
}

}  // namespace longhaul::cuda
