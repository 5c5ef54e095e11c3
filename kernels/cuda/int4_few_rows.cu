// linear with int4 weights for few rows: reads the weights once, at the speed of memory. The scaled
// sums of runs are added up, 8 rows at a time, since a part has four runs.
#include "kernels/cuda/integer_few_rows.cuh"

namespace longhaul::cuda {
namespace {

constexpr int kRunSums = 8 * kSumStride;
constexpr int kTurnSums = kFewRowsWarps * kPartRuns * kRunSums;

// What lane 4g + t multiplies of a part: of each run its line t, outputs 4g to 4g + 3 of the thread
// block's 32, and these outputs' scales.
struct Weights {
  Words4 words[kPartRuns];
  Words2 scales[kPartRuns];
};

__device__ __forceinline__ void load_weights(const Int4Work& work, std::int64_t panels,
                                             std::int64_t part, int g, int t, Weights& out) {
  const std::int64_t panel = panels * 2 + g / 4;
  const std::int64_t n_lines = (work.n_in + kInt4Line - 1) / kInt4Line;
#pragma unroll
  for (int p = 0; p < kPartRuns; ++p) {
    const std::int64_t run = part * kPartRuns + p;
    const std::int64_t line = run * kRunLines + t;
    const std::uint8_t* words = work.weight + panel * work.panel_bytes + line * kLineBytes;
    const bool exists = panel < work.n_panels && line < n_lines;
    out.words[p] = exists ? load_once_16(words + g % 4 * 16) : Words4{};
    const bool run_exists = panel < work.n_panels && run * kInt4Run < work.n_in;
    out.scales[p] = run_exists
                        ? load_once_8(work.scales_of(panel, static_cast<int>(run)) + g % 4 * 4)
                        : Words2{};
  }
}

// The scaled sums of rows [8 tile, 8 tile + 8): to [run][row][output] of `sums`. Those of runs and
// rows that do not exist have no meaning.
__device__ __forceinline__ void multiply(const Int4Work& work, const Weights& weights,
                                         std::int64_t part, int tile, int g, int t, float* sums) {
  const std::int64_t row = 8 * tile + g;
  const auto* codes = reinterpret_cast<const Words2*>(
      work.codes + (row * work.n_parts + part) * kPartSteps + 2 * t);
  const Int8Range* ranges =
      work.ranges + part / work.parts_of_group * work.range_rows + 8 * tile + 2 * t;
  const float of_rows[2] = {ranges[0].scale, ranges[1].scale};
#pragma unroll
  for (int p = 0; p < kPartRuns; ++p) {
    const Words2 right = row < work.n_rows ? codes[p * 4] : Words2{};
    const std::uint32_t(&words)[4] = weights.words[p].at;
    std::int32_t c[2][4];  // of outputs 4g, 4g + 1; of 4g + 2, 4g + 3
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const std::uint32_t left[4] = {
          low_integers(words[2 * pair]), low_integers(words[2 * pair + 1]),
          high_integers(words[2 * pair]), high_integers(words[2 * pair + 1])};
      mma_s8_s8(c[pair], left, right.at, kSumBits);
    }
    RunScale scales[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scales[i] = RunScale(static_cast<std::uint16_t>(weights.scales[p].at[i / 2] >> i % 2 * 16));
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * tile + 2 * t + e >= work.n_rows) continue;
      Words4 out;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float scaled = scales[i].times(c[i / 2][i % 2 * 2 + e]);
        out.at[i] = __float_as_uint(rounded_product(scaled, of_rows[e]));
      }
      *reinterpret_cast<Words4*>(sums + p * kRunSums + (2 * t + e) * kSumStride + 4 * g) = out;
    }
  }
}

// grid.x: two panels, those of one weight after those of another. Shared: two turns' sums.
template <int kTiles>
__global__ void __launch_bounds__(kFewRowsThreads) few_rows_kernel(Works<Int4Weights> works) {
  std::int64_t panels = blockIdx.x;  // pair number, of the weight's
  const Int4Work work{works.rows, works.find(panels)};
  auto* shared = reinterpret_cast<float*>(shared_memory());
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Weights weights;
  load_weights(work, panels, warp, lane / 4, lane % 4, weights);
  float total[kTiles] = {};  // of row 8 tile + warp and the thread block's output `lane`
  int turn = 0;
  for (std::int64_t first = 0; first < work.n_parts; first += kFewRowsWarps) {
    const std::int64_t left = (work.n_in - first * kPartInputs + kInt4Run - 1) / kInt4Run;
    const int n_runs =
        static_cast<int>(left < kFewRowsWarps * kPartRuns ? left : kFewRowsWarps * kPartRuns);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float* sums = shared + turn * kTurnSums;
      turn = 1 - turn;
      if (first + warp < work.n_parts) {
        multiply(work, weights, first + warp, tile, lane / 4, lane % 4,
                 sums + warp * kPartRuns * kRunSums);
      }
      if (tile == kTiles - 1) {
        load_weights(work, panels, first + kFewRowsWarps + warp, lane / 4, lane % 4, weights);
      }
      // The sums are written before they are read; and those of the turn before have been read
      // before the next turn writes there.
      __syncthreads();
      if (8 * tile + warp >= work.n_rows) continue;
      const float* own = sums + warp * kSumStride + lane;
      for (int run = 0; run < n_runs; ++run)
        total[tile] = rounded_sum(total[tile], own[run * kRunSums]);
    }
  }
  store_rows(work, panels, warp, lane, total);
}

template <int kTiles>
void run(Stream& stream, const Works<Int4Weights>& works) {
  launch(stream, "linear: int4, few rows", few_rows_kernel<kTiles>,
         {.x = works.n_blocks(),
          .block = kFewRowsThreads,
          .shared_bytes = sizeof(float) * 2 * kTurnSums},
         works);
}

}  // namespace

void int4_few_rows(Stream& stream, const Works<Int4Weights>& works) {
  with_tiles_of(works.rows.n_rows,
                [&](auto n_tiles) { run<decltype(n_tiles)::value>(stream, works); });
}

}  // namespace longhaul::cuda
