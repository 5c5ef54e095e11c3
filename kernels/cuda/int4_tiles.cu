// linear with int4 weights for many rows. A run of 32 inputs is one product of tensor cores; a warp
// unpacks a run's weights, and for 8 rows at a time multiplies them exactly, scales the sums and
// adds them to its outputs.
#include "kernels/cuda/integer_tiles.cuh"

namespace longhaul::cuda {
namespace {

// What a lane needs of a run of 32 outputs: [pair of outputs], and its outputs' scales.
struct RunLeft {
  std::uint32_t integers[2][4];
  RunScale scales[4];
};

struct Int4Tiles {
  using Work = Int4Work;
  static constexpr int kPartLines = kPartRuns * kRunLines;
  static constexpr int kRunScaleBytes = kPanelOutputs * 2;
  static constexpr int kScaleBytes = kPartRuns * kRunScaleBytes;
  static constexpr bool kGroupsAreParts = false;
  static constexpr bool kKeepsSums = false;
  __device__ __forceinline__ static std::int64_t n_lines(const Work& work) {
    return (work.n_in + kInt4Line - 1) / kInt4Line;
  }
  // 16 lanes read 32 bytes of four rows.
  __device__ __forceinline__ static int codes_at(int row, int chunk) {
    return row * kPartInputs + (chunk ^ (row % 4 * 2)) * 16;
  }

  // `panel` and `scales`: of the lane's panel, in the stage.
  __device__ __forceinline__ static RunLeft load_left(const std::byte* panel,
                                                      const std::byte* scales, int run, int g,
                                                      int t) {
    const Words4 words =
        *reinterpret_cast<const Words4*>(panel + weight_at(kRunLines * run + t, g % 4));
    const Words2 halves =
        *reinterpret_cast<const Words2*>(scales + run * kRunScaleBytes + g % 4 * 8);
    RunLeft left;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      left.integers[q / 2][q % 2] = low_integers(words.at[q]);
      left.integers[q / 2][2 + q % 2] = high_integers(words.at[q]);
      left.scales[q] = RunScale(static_cast<std::uint16_t>(halves.at[q / 2] >> q % 2 * 16));
    }
    return left;
  }

  template <typename C>
  __device__ __forceinline__ static void multiply(const Work& work, int part, bool /*ends_group*/,
                                                  const std::byte* stage, const TileLane& lane,
                                                  TileOutputs<C>& out) {
    const int first_panel = lane.first_panel<C>() + lane.g / 4;
    const std::byte* panels = stage + first_panel * C::kPanelBytes;
    const std::byte* scales = stage + C::kScalesAt + first_panel * kScaleBytes;
    const auto left_in = static_cast<int>(work.n_in) - part * kPartInputs;
    for (int run = 0; run < kPartRuns && run * kInt4Run < left_in; ++run) {
      RunLeft left[C::kHalves];
#pragma unroll
      for (int half = 0; half < C::kHalves; ++half) {
        left[half] = load_left(panels + half * 2 * C::kPanelBytes, scales + half * 2 * kScaleBytes,
                               run, lane.g, lane.t);
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int row = lane.first_row<C>() + 8 * n;
        const std::byte* codes = stage + C::kCodesAt + codes_at(row + lane.g, 2 * run + lane.t / 2);
        const Words2 right = *reinterpret_cast<const Words2*>(codes + lane.t % 2 * 8);
        const auto* ranges =
            reinterpret_cast<const Int8Range*>(stage + C::kRangesAt) + row + 2 * lane.t;
        const float of_rows[2] = {ranges[0].scale, ranges[1].scale};
#pragma unroll
        for (int m = 0; m < 2 * C::kHalves; ++m) {
          const RunLeft& of = left[m / 2];
          std::int32_t sums[4];
          mma_s8_s8(sums, of.integers[m % 2], right.at, kSumBits);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float scaled = of.scales[m % 2 * 2 + i / 2].times(sums[i]);
            out.at[m][n][i] = rounded_sum(out.at[m][n][i], rounded_product(scaled, of_rows[i % 2]));
          }
        }
      }
    }
  }
};

}  // namespace

void int4_tiles(Stream& stream, const Int4Work& work) {
  run_tiles<Int4Tiles>(stream, "linear: int4", work);
}

}  // namespace longhaul::cuda
