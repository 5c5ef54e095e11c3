// top_k: thread blocks find the best of pieces of a row, another one the best of those. Each finds
// the k-th best by radix selection on keys of 64 bits that no two logits share (higher logit first,
// then lower id), 8 bits a pass, then gathers what is not behind it. The few ids are sorted on the
// host, which needs them next anyway.
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

constexpr int kBestThreads = 512;
constexpr int kDigits = 256;
constexpr std::int64_t kPiece = 4096;  // logits

struct Candidate {
  float logit;
  std::int32_t id;
};

// Of a row or a piece of it.
struct Statistics {
  float max;
  std::int32_t has_nan;
  double sum_of_exp;  // of logit - max, or of logit where max is minus infinity
};

struct TopK {
  const float* logits;  // [n_rows, vocab_size]
  std::int64_t stride;
  std::int64_t vocab_size;
  std::int64_t k;
  std::int64_t n_pieces;
  std::int64_t piece;         // logits of each, of the last one fewer
  Statistics* of_pieces;      // [n_rows, n_pieces]
  Candidate* best_of_pieces;  // [n_rows, n_pieces, k], in any order
  Statistics* of_rows;        // [n_rows]; the same memory if there is one piece
  Candidate* best_of_rows;    // [n_rows, k]
  bool operator==(const TopK&) const = default;
};

struct Shared {
  double sums[kBestThreads / kWarp];
  float maxima[kBestThreads / kWarp];
  int nans[kBestThreads / kWarp];
  std::int32_t counts[kDigits];
  std::uint64_t prefix;  // of the k-th largest key, as far as it is known
  std::int32_t wanted;   // how many keys with that prefix are among the best
  std::int32_t n_with_prefix;
  std::int32_t n_found;
};

// What is chosen from: a piece of a row's logits, or the best of its pieces.
struct PieceOfRow {
  const float* logits;
  std::int64_t first_id;
  std::int64_t n;
  __device__ Candidate at(std::int64_t i) const {
    return {logits[i], static_cast<std::int32_t>(first_id + i)};
  }
};
struct BestOfPieces {
  const Candidate* candidates;
  std::int64_t n;
  __device__ Candidate at(std::int64_t i) const { return candidates[i]; }
};

// Larger keys stand before smaller ones; -0 is 0.
__device__ std::uint64_t key_of(const Candidate& candidate) {
  const std::uint32_t bits = __float_as_uint(candidate.logit + 0.0F);
  const std::uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(ordered) << 32U |
         (0xffffffffU - static_cast<std::uint32_t>(candidate.id));
}
// Behind all that a row has, and no two alike: in place of candidates that a piece has not.
__device__ Candidate behind_all(std::int64_t i) {
  return {minus_infinity(), static_cast<std::int32_t>(0x7fffffff - i)};
}

__device__ float reference_of(float max) { return max == minus_infinity() ? 0.0F : max; }

__device__ Statistics statistics_of(const PieceOfRow& piece, Shared& shared) {
  float max = minus_infinity();
  int has_nan = 0;
  for (std::int64_t i = threadIdx.x; i < piece.n; i += kBestThreads) {
    const float logit = piece.logits[i];
    max = Larger()(logit, max);
    if (logit != logit) has_nan = 1;
  }
  max = reduce_block(max, Larger(), shared.maxima);
  has_nan = reduce_block(has_nan, Larger(), shared.nans);
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < piece.n; i += kBestThreads) {
    sum += static_cast<double>(expf(piece.logits[i] - reference_of(max)));
  }
  return {max, has_nan, reduce_block(sum, Add(), shared.sums)};
}

// By all threads of a warp.
__device__ Statistics merged(const Statistics* pieces, std::int64_t n) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  float max = minus_infinity();
  int has_nan = 0;
  for (std::int64_t i = lane; i < n; i += kWarp) {
    max = Larger()(pieces[i].max, max);
    has_nan |= pieces[i].has_nan;
  }
  max = reduce_warp(max, Larger());
  double sum = 0.0;
  for (std::int64_t i = lane; i < n; i += kWarp) {
    const float distance = reference_of(pieces[i].max) - reference_of(max);
    const bool is_nothing = pieces[i].max == minus_infinity() && max != minus_infinity();
    if (!is_nothing) sum += pieces[i].sum_of_exp * static_cast<double>(expf(distance));
  }
  return {max, reduce_warp(has_nan, Larger()), reduce_warp(sum, Add())};
}

// By a warp: the digit of the k-th largest key joins shared.prefix. Each lane has 8 digits, those
// of lane 0 are the largest.
__device__ void choose_digit(int shift, Shared& shared) {
  constexpr int kOwn = kDigits / kWarp;
  const int lane = static_cast<int>(threadIdx.x);
  const int largest = kDigits - 1 - kOwn * lane;
  std::int32_t own = 0;
  for (int i = 0; i < kOwn; ++i) own += shared.counts[largest - i];
  std::int32_t up_to_here = own;  // and of lanes before
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const std::int32_t before = shuffle_from(up_to_here, lane < distance ? lane : lane - distance);
    if (lane >= distance) up_to_here += before;
  }
  const std::int32_t wanted = shared.wanted;
  sync_warp();  // all lanes know what is wanted before one of them changes it
  std::int32_t before = up_to_here - own;
  if (before >= wanted || up_to_here < wanted) return;
  int digit = largest;
  while (before + shared.counts[digit] < wanted) before += shared.counts[digit--];
  shared.prefix |= static_cast<std::uint64_t>(digit) << shift;
  shared.wanted = wanted - before;
  shared.n_with_prefix = shared.counts[digit];
}

// A key that k keys are not behind of. All threads call, and k is at most as many as there are.
template <typename From>
__device__ std::uint64_t least_of_best(const From& from, std::int64_t k, Shared& shared) {
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.wanted = static_cast<std::int32_t>(k);
  }
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (auto i = static_cast<int>(threadIdx.x); i < kDigits; i += kBestThreads)
      shared.counts[i] = 0;
    __syncthreads();  // counts are cleared, prefix is set, before they are used
    const std::uint64_t prefix = shared.prefix;
    for (std::int64_t i = threadIdx.x; i < from.n; i += kBestThreads) {
      const std::uint64_t key = key_of(from.at(i));
      // Of the bits above this digit; a shift by 64 would be undefined.
      if (shift == 56 || key >> (shift + 8) == prefix >> (shift + 8)) {
        atomicAdd(&shared.counts[key >> shift & 0xffU], 1);
      }
    }
    __syncthreads();  // all keys are counted before the digit is chosen
    if (threadIdx.x < kWarp) choose_digit(shift, shared);
    __syncthreads();  // the digit is chosen before the counts are cleared or the key is used
    if (shared.wanted == shared.n_with_prefix) break;  // all that begin so, whatever follows
  }
  return shared.prefix;
}

template <typename From>
__device__ void gather_best(const From& from, std::int64_t k, Shared& shared, Candidate* out) {
  if (threadIdx.x == 0) shared.n_found = 0;
  const std::int64_t n = k < from.n ? k : from.n;
  const std::uint64_t least = n < from.n ? least_of_best(from, n, shared) : 0;
  __syncthreads();  // the counter is cleared before candidates are counted
  for (std::int64_t i = threadIdx.x; i < from.n; i += kBestThreads) {
    const Candidate candidate = from.at(i);
    if (key_of(candidate) >= least) out[atomicAdd(&shared.n_found, 1)] = candidate;
  }
  for (std::int64_t i = n + threadIdx.x; i < k; i += kBestThreads) out[i] = behind_all(i);
}

// grid.x is the piece, grid.y the row. Shared: one Shared.
__global__ void best_of_piece(TopK t) {
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
  const std::int64_t row = blockIdx.y;
  const std::int64_t number = row * t.n_pieces + blockIdx.x;
  const std::int64_t first = blockIdx.x * t.piece;
  const std::int64_t left = t.vocab_size - first;
  const PieceOfRow piece = {.logits = t.logits + row * t.stride + first,
                            .first_id = first,
                            .n = left < t.piece ? left : t.piece};
  const Statistics found = statistics_of(piece, shared);
  if (threadIdx.x == 0) t.of_pieces[number] = found;
  if (found.has_nan == 0) gather_best(piece, t.k, shared, t.best_of_pieces + number * t.k);
}

// grid.x is the row. Shared: one Shared.
__global__ void best_of_row(TopK t) {
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
  const std::int64_t row = blockIdx.x;
  const Statistics found = merged(t.of_pieces + row * t.n_pieces, t.n_pieces);
  if (threadIdx.x == 0) t.of_rows[row] = found;
  if (found.has_nan != 0) return;
  const BestOfPieces best = {.candidates = t.best_of_pieces + row * t.n_pieces * t.k,
                             .n = t.n_pieces * t.k};
  gather_best(best, t.k, shared, t.best_of_rows + row * t.k);
}

// One piece where pieces would leave most of the row to be chosen from again.
std::int64_t n_pieces_of(std::int64_t vocab_size, std::int64_t k) {
  const std::int64_t n = ceil_div(vocab_size, kPiece);
  return n * k > vocab_size / 4 ? 1 : n;
}

void finish_row(const TopKArgs& args, std::int64_t row, const Statistics& found,
                Candidate* candidates) {
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
  const std::int64_t k = args.ids.dim(1);
  const std::int64_t n_pieces = n_pieces_of(args.logits.dim(1), k);
  const std::size_t n_candidates = n_rows * static_cast<std::size_t>(k);
  const std::size_t bytes = n_rows * sizeof(Statistics) + n_candidates * sizeof(Candidate);
  const bool has_pieces = n_pieces > 1;
  std::byte* memory =
      stream.scratch(has_pieces ? bytes * static_cast<std::size_t>(1 + n_pieces) : bytes);
  std::byte* of_pieces = has_pieces ? memory + bytes : memory;
  const auto candidates_behind = [](std::byte* statistics, std::size_t n) {
    return reinterpret_cast<Candidate*>(statistics + n * sizeof(Statistics));
  };
  const TopK t = {
      .logits = args.logits.data(),
      .stride = args.logits.stride(0),
      .vocab_size = args.logits.dim(1),
      .k = k,
      .n_pieces = n_pieces,
      .piece = ceil_div(args.logits.dim(1), n_pieces),
      .of_pieces = reinterpret_cast<Statistics*>(of_pieces),
      .best_of_pieces = candidates_behind(of_pieces, n_rows * static_cast<std::size_t>(n_pieces)),
      .of_rows = reinterpret_cast<Statistics*>(memory),
      .best_of_rows = candidates_behind(memory, n_rows)};
  launch(stream, "top_k: pieces", best_of_piece,
         {.x = n_pieces,
          .y = args.logits.dim(0),
          .block = kBestThreads,
          .shared_bytes = sizeof(Shared)},
         t);
  if (has_pieces) {
    launch(stream, "top_k", best_of_row,
           {.x = args.logits.dim(0), .block = kBestThreads, .shared_bytes = sizeof(Shared)}, t);
  }
  const std::byte* results = stream.download(memory, bytes);
  const auto* rows = reinterpret_cast<const Statistics*>(results);
  const auto* found = reinterpret_cast<const Candidate*>(results + n_rows * sizeof(Statistics));
  std::vector<Candidate> candidates(found, found + n_candidates);
  for (std::size_t row = 0; row < n_rows; ++row) {
    finish_row(args, static_cast<std::int64_t>(row), rows[row],
               candidates.data() + row * static_cast<std::size_t>(k));
  }
}

}  // namespace longhaul::cuda
