// linear with int8 weights for few rows: reads the weights once, at the speed of memory. The scaled
// sums of groups are added up; of larger groups (kSplit) sums of parts, which are scaled when all
// of a group's are added.
#include "kernels/cuda/integer_few_rows.cuh"

namespace longhaul::cuda {
namespace {

// What lane 4g + t multiplies of a part: number i is of step 4i + t, outputs 4g to 4g + 3 of the
// thread block's 32.
struct Weights {
  Words4 at[kPartSteps / 4];
};

__device__ __forceinline__ void load_weights(const Int8Work& work, std::int64_t panels,
                                             std::int64_t part, int g, int t, Weights& out) {
  const std::int64_t panel = panels * 2 + g / 4;
  const bool exists = part < work.n_parts && panel < work.n_panels;
  const std::uint8_t* from =
      work.weight + panel * work.panel_bytes + part * kPartSteps * kLineBytes + g % 4 * 16;
#pragma unroll
  for (int i = 0; i < kPartSteps / 4; ++i) {
    const int step = 4 * i + t;
    out.at[i] = exists && part * kPartSteps + step < work.n_steps
                    ? load_once_16(from + step * kLineBytes)
                    : Words4{};
  }
}

// The sums of rows [8 tile, 8 tile + 8), scaled unless kSplit: to [row][output] of `sums`.
template <bool kSplit>
__device__ __forceinline__ void multiply(const Int8Work& work, const Weights& weights,
                                         std::int64_t part, int tile, int g, int t, float* sums) {
  const std::int64_t row = 8 * tile + g;
  Words4 codes[2] = {};
  if (row < work.n_rows) {
    const auto* from = reinterpret_cast<const Words4*>(
        work.codes + (row * work.n_parts + part) * kPartSteps + 8 * t);
    codes[0] = from[0];
    codes[1] = from[1];
  }
  // Rows that do not exist have ranges without meaning; nobody reads their sums.
  Words4 range = {};
  if constexpr (!kSplit) {
    range =
        *reinterpret_cast<const Words4*>(work.ranges + part * work.range_rows + 8 * tile + 2 * t);
  }
  std::int32_t c[2][4];  // of outputs 4g, 4g + 1; of 4g + 2, 4g + 3
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[pair][i] = static_cast<std::int32_t>(range.at[i % 2 * 2 + 1]);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const Words4& low = weights.at[2 * p];
      const Words4& high = weights.at[2 * p + 1];
      const std::uint32_t left[4] = {low.at[2 * pair], low.at[2 * pair + 1], high.at[2 * pair],
                                     high.at[2 * pair + 1]};
      const std::uint32_t right[2] = {codes[p / 2].at[p % 2 * 2], codes[p / 2].at[p % 2 * 2 + 1]};
      mma_u8_s8(c[pair], left, right);
    }
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    Words4 out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int32_t sum = c[i / 2][i % 2 * 2 + e];
      out.at[i] = kSplit ? static_cast<std::uint32_t>(sum)
                         : __float_as_uint(rounded_product(float_of_sum(sum),
                                                           __uint_as_float(range.at[2 * e])));
    }
    *reinterpret_cast<Words4*>(sums + (8 * tile + 2 * t + e) * kSumStride + 4 * g) = out;
  }
}

// The group of kSplit whose parts are being added, for row 8 tile + warp and one output.
template <int kTiles>
struct Group {
  std::int32_t sums[kTiles] = {};
  std::int64_t number = 0;
  std::int64_t n_added = 0;

  // A part's sums, of row `row` and every eighth behind it; a group's go to `total` when it ends.
  __device__ __forceinline__ void add(const Int8Work& work, const float* part, int row,
                                      float (&total)[kTiles]) {
    const bool ends = ++n_added == work.parts_of_group;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      sums[tile] += static_cast<std::int32_t>(__float_as_uint(part[8 * tile * kSumStride]));
      if (!ends) continue;
      const Int8Range range = work.ranges[number * work.range_rows + 8 * tile + row];
      total[tile] = rounded_sum(
          total[tile], rounded_product(static_cast<float>(sums[tile] + range.start), range.scale));
      sums[tile] = 0;
    }
    if (!ends) return;
    ++number;
    n_added = 0;
  }
};

// grid.x: two panels, those of one weight after those of another. Shared: [2, 8 warps, 8 kTiles
// rows, kSumStride] floats.
template <int kTiles, bool kSplit>
__global__ void __launch_bounds__(kFewRowsThreads) few_rows_kernel(Works<Int8Weights> works) {
  std::int64_t panels = blockIdx.x;  // pair number, of the weight's
  const Int8Work work{works.rows, works.find(panels)};
  constexpr int kSums = 8 * kTiles * kSumStride;
  auto* shared = reinterpret_cast<float*>(shared_memory());
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Weights weights;
  load_weights(work, panels, warp, lane / 4, lane % 4, weights);
  float total[kTiles] = {};  // of row 8 tile + warp and the thread block's output `lane`
  [[maybe_unused]] Group<kTiles> group;
  for (std::int64_t first = 0; first < work.n_parts; first += kFewRowsWarps) {
    float* sums = shared + first / kFewRowsWarps % 2 * kFewRowsWarps * kSums;
    if (first + warp < work.n_parts) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        multiply<kSplit>(work, weights, first + warp, tile, lane / 4, lane % 4,
                         sums + warp * kSums);
      }
    }
    load_weights(work, panels, first + kFewRowsWarps + warp, lane / 4, lane % 4, weights);
    // The sums are written before they are read; and those of the turn before have been read
    // before the next turn writes there.
    __syncthreads();
    const std::int64_t left = work.n_parts - first;
    const int n = static_cast<int>(left < kFewRowsWarps ? left : kFewRowsWarps);
    if constexpr (kSplit) {
      for (int w = 0; w < n; ++w)
        group.add(work, sums + w * kSums + warp * kSumStride + lane, warp, total);
    } else {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float* own = sums + (8 * tile + warp) * kSumStride + lane;
        for (int w = 0; w < n; ++w) total[tile] = rounded_sum(total[tile], own[w * kSums]);
      }
    }
  }
  store_rows(work, panels, warp, lane, total);
}

template <int kTiles, bool kSplit>
void run(Stream& stream, const Works<Int8Weights>& works) {
  launch(stream, "linear: int8, few rows", few_rows_kernel<kTiles, kSplit>,
         {.x = works.n_blocks(),
          .block = kFewRowsThreads,
          .shared_bytes = sizeof(float) * 2 * kFewRowsWarps * 8 * kTiles * kSumStride},
         works);
}

template <bool kSplit>
void run_for_rows(Stream& stream, const Works<Int8Weights>& works) {
  with_tiles_of(works.rows.n_rows,
                [&](auto n_tiles) { run<decltype(n_tiles)::value, kSplit>(stream, works); });
}

}  // namespace

void int8_few_rows(Stream& stream, const Works<Int8Weights>& works) {
  if (works.rows.group == kInt8Group) return run_for_rows<false>(stream, works);
  run_for_rows<true>(stream, works);
}

}  // namespace longhaul::cuda
