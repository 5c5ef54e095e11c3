// score_keys and key_masses: how much some queries attend to each key (kernels/key_scores.h).
// Scores are made twice, once for their sums and once for the masses, and never stored: of a
// million keys they would take more than the keys themselves. A thread block takes tiles of keys
// and all rows (queries x heads), 32 of them at a time. Plain multiply-adds along head_dim in
// order, since a score must not depend on what lies beside it.
#include <cstring>
#include <vector>

#include "base/device/gpu_memory.h"
#include "base/ids.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/key_tiles.h"
#include "kernels/cuda/key_values.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/cuda/plain_grid.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen_by.h"
#include "kernels/cuda/softmax_state.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

constexpr int kKeys = kKeysOfScoreTile;
constexpr int kRows = 32;  // at a time
constexpr int kDims = 32;  // that lie in shared memory at a time
constexpr int kRowsOfThread = kKeys * kRows / kThreads;
constexpr int kRowsOfWarp = kRows * kWarp / kThreads;
static_assert(kKeys % kWarp == 0 && kThreads % kKeys == 0);

struct Scoring {
  const float* q;                 // [n_rows, head_dim], scaled
  const std::int64_t* positions;  // [n_queries]
  const KeyTile* tiles;           // [n_tiles]
  std::int64_t n_tiles;
  std::int64_t n_rows;
  std::int64_t gqa_group;
  std::int64_t n_keys;
  KeyPart k;
  bool operator==(const Scoring&) const = default;
};

// Rows `first`, `first` + `stride`, ...: of all heads, or of one.
struct RowsOf {
  std::int64_t first;
  std::int64_t stride;
  std::int64_t n;
  __device__ std::int64_t operator[](std::int64_t i) const { return first + i * stride; }
};

struct Shared {
  float keys[kDims][kKeys];
  float q[kDims][kRows];
  float scores[kRows][kKeys];
};

// Scores of kRows rows from rows[begin] on with the tile's keys, -inf where a row does not see a
// key. A thread has one key and the rows kRowsOfThread * group + i, group = its number / kKeys. All
// threads call.
__device__ void score_tile(const Scoring& s, const KeyTile& tile, const RowsOf& rows,
                           std::int64_t begin, Shared& shared, float (&sums)[kRowsOfThread]) {
  const int key = static_cast<int>(threadIdx.x) % kKeys;
  const int first_row = static_cast<int>(threadIdx.x) / kKeys * kRowsOfThread;
  for (int i = 0; i < kRowsOfThread; ++i) sums[i] = 0.0F;
  for (std::int64_t d0 = 0; d0 < s.k.head_dim; d0 += kDims) {
    const int n_dims = static_cast<int>(s.k.head_dim - d0 < kDims ? s.k.head_dim - d0 : kDims);
    __syncthreads();  // the dimensions before are multiplied before these take their place
    for (int i = static_cast<int>(threadIdx.x); i < n_dims * kKeys; i += kThreads) {
      shared.keys[i / kKeys][i % kKeys] =
          i % kKeys < tile.n_keys
              ? key_value(s.k, tile.block, d0 + i / kKeys, tile.first_slot + i % kKeys)
              : 0.0F;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kRows * n_dims; i += kThreads) {
      const int row = i / n_dims;
      const int d = i % n_dims;
      shared.q[d][row] =
          begin + row < rows.n ? s.q[rows[begin + row] * s.k.head_dim + d0 + d] : 0.0F;
    }
    __syncthreads();  // keys and queries are there before they are multiplied
    for (int d = 0; d < n_dims; ++d) {
      const float value = shared.keys[d][key];
      for (int i = 0; i < kRowsOfThread; ++i)
        sums[i] = fmaf(shared.q[d][first_row + i], value, sums[i]);
    }
  }
  for (int i = 0; i < kRowsOfThread; ++i) {
    const std::int64_t row = begin + first_row + i;
    const bool sees = row < rows.n && key < tile.n_keys &&
                      tile.first_position + key <= s.positions[rows[row] / s.gqa_group] &&
                      is_seen_by(tile.seen_by, key, rows[row] % s.gqa_group);
    if (!sees) sums[i] = minus_infinity();
  }
}

// exp(scores) of one row so far, as ExpSum.
struct Sum {
  float max;
  double sum;
};
static_assert(sizeof(Sum) == kKeyScoreSumBytes);
__device__ Sum sum_of(const Sum& a, const Sum& b) {
  const float max = Larger()(a.max, b.max);
  if (max == minus_infinity()) return {max, 0.0};
  const double of_a = a.max == max ? a.sum : a.sum * exp(static_cast<double>(a.max - max));
  const double of_b = b.max == max ? b.sum : b.sum * exp(static_cast<double>(b.max - max));
  return {max, of_a + of_b};
}

// grid.x is a part of the tiles, grid.y kRows rows. Shared: one Shared.
__global__ void part_sums_kernel(Scoring s, std::int64_t tiles_of_part,
                                 Sum* parts) {  // [parts, n_rows]
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
  const RowsOf rows = {0, 1, s.n_rows};
  const std::int64_t begin_row = static_cast<std::int64_t>(blockIdx.y) * kRows;
  const int key = static_cast<int>(threadIdx.x) % kKeys;
  const int first_row = static_cast<int>(threadIdx.x) / kKeys * kRowsOfThread;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Sum sums[kRowsOfWarp];
  for (Sum& sum : sums) sum = {minus_infinity(), 0.0};
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * tiles_of_part;
  const std::int64_t end = begin + tiles_of_part < s.n_tiles ? begin + tiles_of_part : s.n_tiles;
  for (std::int64_t t = begin; t < end; ++t) {
    float scores[kRowsOfThread];
    score_tile(s, s.tiles[t], rows, begin_row, shared, scores);
    for (int i = 0; i < kRowsOfThread; ++i) shared.scores[first_row + i][key] = scores[i];
    __syncthreads();  // scores are written before warps sum them up; the next ones come behind the
                      // barriers of the next products
    for (int i = 0; i < kRowsOfWarp; ++i) {
      for (int j = lane; j < kKeys; j += kWarp) {
        const float score = shared.scores[warp * kRowsOfWarp + i][j];
        if (score > sums[i].max) sums[i] = sum_of(sums[i], {score, 0.0});
        if (score != minus_infinity())
          sums[i].sum += static_cast<double>(expf(score - sums[i].max));
      }
    }
  }
  for (int i = 0; i < kRowsOfWarp; ++i) {
    Sum sum = sums[i];
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      sum = sum_of(sum, {shuffle_xor(sum.max, mask), shuffle_xor(sum.sum, mask)});
    const std::int64_t row = begin_row + warp * kRowsOfWarp + i;
    if (lane == 0 && row < s.n_rows) parts[blockIdx.x * s.n_rows + row] = sum;
  }
}

// A thread for each row.
__global__ void whole_sums_kernel(const Sum* parts,  // [n_parts, n_rows]
                                  std::int64_t n_parts, std::int64_t n_rows,
                                  Sum* sums) {  // [n_rows]
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  if (row >= n_rows) return;
  Sum sum = {minus_infinity(), 0.0};
  for (std::int64_t part = 0; part < n_parts; ++part) sum = sum_of(sum, parts[part * n_rows + row]);
  sums[row] = sum;
}

struct Masses {
  const float* maxima;             // [n_rows]
  const double* inverses;          // [n_rows]
  const std::int64_t* first_keys;  // [n_queries], or null
  float* of_heads;                 // [gqa_group, n_keys], or null
  double* sums;                    // [n_keys], added to
  bool operator==(const Masses&) const = default;
};

// grid.x is the tile; grid.y is the head of `of_heads`, or 1. Shared: one Shared. Rows are added
// one after the other, so that it does not matter which come together.
__global__ void masses_kernel(Scoring s, Masses m) {
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
  const KeyTile tile = s.tiles[blockIdx.x];
  const bool is_apart = m.of_heads != nullptr;
  const std::int64_t head = blockIdx.y;
  const RowsOf rows =
      is_apart ? RowsOf{head, s.gqa_group, s.n_rows / s.gqa_group} : RowsOf{0, 1, s.n_rows};
  const int key = static_cast<int>(threadIdx.x) % kKeys;
  const int first_row = static_cast<int>(threadIdx.x) / kKeys * kRowsOfThread;
  const bool adds = static_cast<int>(threadIdx.x) < tile.n_keys;
  const std::int64_t number = tile.first_key + static_cast<std::int64_t>(threadIdx.x);
  double sum = adds && !is_apart ? m.sums[number] : 0.0;
  for (std::int64_t begin = 0; begin < rows.n; begin += kRows) {
    float scores[kRowsOfThread];
    score_tile(s, tile, rows, begin, shared, scores);
    for (int i = 0; i < kRowsOfThread; ++i) {
      const std::int64_t row = begin + first_row + i;
      shared.scores[first_row + i][key] =
          row < rows.n ? weight_of(scores[i], m.maxima[rows[row]]) : 0.0F;
    }
    __syncthreads();  // weights are written before they are added up; the next ones come behind the
                      // barriers of the next products
    for (int i = 0; adds && i < kRows && begin + i < rows.n; ++i) {
      const std::int64_t row = rows[begin + i];
      if (m.first_keys != nullptr && number < m.first_keys[row / s.gqa_group]) continue;
      sum += static_cast<double>(shared.scores[i][threadIdx.x]) * m.inverses[row];
    }
  }
  if (!adds) return;
  if (is_apart) {
    m.of_heads[head * s.n_keys + number] = static_cast<float>(sum);
  } else {
    m.sums[number] = sum;
  }
}

// What is asked, in a parcel that may have other parts too.
class ScoringParcel {
 public:
  ScoringParcel(const KeyScores& keys, Parcel& parcel)
      : keys_(keys),
        tiles_(tiles_of(keys.of.blocks)),
        q_at_(parcel.add(scaled_rows(keys.of))),
        positions_at_(parcel.add(
            std::vector<std::int64_t>(keys.of.q_positions.begin(), keys.of.q_positions.end()))),
        tiles_at_(parcel.add(tiles_)) {}
  std::int64_t n_tiles() const { return static_cast<std::int64_t>(tiles_.size()); }
  Scoring at(const std::byte* base) const {
    return {.q = part<float>(base, q_at_),
            .positions = part<std::int64_t>(base, positions_at_),
            .tiles = part<KeyTile>(base, tiles_at_),
            .n_tiles = n_tiles(),
            .n_rows = keys_.n_queries * keys_.gqa_group,
            .gqa_group = keys_.gqa_group,
            .n_keys = keys_.n_keys,
            .k = key_part(keys_.of.shape)};
  }

 private:
  const KeyScores& keys_;
  std::vector<KeyTile> tiles_;
  std::size_t q_at_;
  std::size_t positions_at_;
  std::size_t tiles_at_;
};

}  // namespace

void score_keys(Stream& stream, KeyScores& out) {
  const std::int64_t n_rows = out.n_queries * out.gqa_group;
  if (n_rows == 0 || out.n_keys == 0) return;
  Parcel parcel;
  const ScoringParcel asked(out, parcel);
  const Scoring s = asked.at(stream.upload(parcel.bytes()));
  const std::int64_t tiles_of_part = ceil_div(asked.n_tiles(), kMostKeyScoreParts);
  const std::int64_t n_parts = ceil_div(asked.n_tiles(), tiles_of_part);
  auto* parts = reinterpret_cast<Sum*>(
      stream.scratch(static_cast<std::size_t>((n_parts + 1) * n_rows) * sizeof(Sum)));
  Sum* sums = parts + n_parts * n_rows;
  launch(stream, "score_keys", part_sums_kernel,
         {.x = n_parts,
          .y = ceil_div(n_rows, kRows),
          .block = kThreads,
          .shared_bytes = sizeof(Shared)},
         s, tiles_of_part, parts);
  launch(stream, "score_keys: merge", whole_sums_kernel,
         {.x = ceil_div(n_rows, kThreads), .block = kThreads}, parts, n_parts, n_rows, sums);
  const auto* found = reinterpret_cast<const Sum*>(stream.download(
      reinterpret_cast<const std::byte*>(sums), static_cast<std::size_t>(n_rows) * sizeof(Sum)));
  for (std::size_t row = 0; row < out.sums.size(); ++row)
    out.sums[row] = {static_cast<double>(found[row].max), found[row].sum};
}

void key_masses(Stream& stream, const KeyMassesArgs& args) {
  const KeyScores& keys = args.keys;
  Parcel parcel;
  const ScoringParcel asked(keys, parcel);
  const std::size_t maxima_at = parcel.add(args.rows.maxima);
  const std::size_t inverses_at = parcel.add(args.rows.inverses);
  const std::size_t first_keys_at =
      parcel.add(std::vector<std::int64_t>(args.first_keys.begin(), args.first_keys.end()));
  const std::size_t sums_at = parcel.add(std::vector<double>(args.sums.begin(), args.sums.end()));
  const std::byte* base = stream.upload(parcel.bytes());
  const bool is_apart = !args.masses.empty();
  const std::span<std::byte> result =
      is_apart ? std::as_writable_bytes(args.masses) : std::as_writable_bytes(args.sums);
  std::byte* masses = stream.scratch(result.size());
  if (!is_apart) copy_on_device(stream, masses, base + sums_at, result.size());
  const Masses m = {
      .maxima = part<float>(base, maxima_at),
      .inverses = part<double>(base, inverses_at),
      .first_keys = args.first_keys.empty() ? nullptr : part<std::int64_t>(base, first_keys_at),
      .of_heads = is_apart ? reinterpret_cast<float*>(masses) : nullptr,
      .sums = is_apart ? nullptr : reinterpret_cast<double*>(masses)};
  launch(stream, "key_masses", masses_kernel,
         {.x = asked.n_tiles(),
          .y = is_apart ? keys.gqa_group : 1,
          .block = kThreads,
          .shared_bytes = sizeof(Shared)},
         asked.at(base), m);
  std::memcpy(result.data(), stream.download(masses, result.size()), result.size());
}

}  // namespace longhaul::cuda
