// linear with int8 weights for many rows. A warp keeps the weights of a part in registers, and for
// 8 rows at a time multiplies them exactly, scales the sums and adds them to its outputs. Of groups
// of several parts sums stay in registers until the group ends, so a warp has 32 outputs.
#include "kernels/cuda/integer_tiles.cuh"

namespace longhaul::cuda {
namespace {

// What a lane multiplies of 32 outputs of a part: [pair of outputs, product along the part].
using Left = std::uint32_t[2][4][4];

__device__ __forceinline__ void load_left(const std::byte* panel, int g, int t, Left& left) {
  // The four words of a left side must be neighbouring registers. Loads give them in another order,
  // and moves would be made again before each product; a bit operation with 0, which the compiler
  // does not know, is made once.
  const std::uint32_t zero = threadIdx.z;
#pragma unroll
  for (int i = 0; i < kPartSteps / 4; ++i) {
    const Words4 words = *reinterpret_cast<const Words4*>(panel + weight_at(4 * i + t, g % 4));
#pragma unroll
    for (int q = 0; q < 4; ++q) left[q / 2][i / 2][i % 2 * 2 + q % 2] = words.at[q] ^ zero;
  }
}

// Of 8 rows: what a lane multiplies, and the ranges of its two rows.
struct Right {
  std::uint32_t codes[4][2];
  Words4 range;

  __device__ __forceinline__ std::int32_t start(int i) const {
    return static_cast<std::int32_t>(range.at[i % 2 * 2 + 1]);
  }
  __device__ __forceinline__ float scale(int i) const {
    return __uint_as_float(range.at[i % 2 * 2]);
  }
};

// kSplit: groups of several parts.
template <bool kSplit>
struct Int8Tiles {
  using Work = Int8Work;
  static constexpr int kPartLines = kPartSteps;
  static constexpr int kScaleBytes = 0;
  static constexpr bool kGroupsAreParts = !kSplit;
  static constexpr bool kKeepsSums = kSplit;
  __device__ __forceinline__ static std::int64_t n_lines(const Work& work) { return work.n_steps; }
  // 8 lanes read every other one of two rows.
  __device__ __forceinline__ static int codes_at(int row, int chunk) {
    return row * kPartInputs + (chunk ^ (row % 2)) * 16;
  }

  template <typename C>
  __device__ __forceinline__ static Right load_right(const std::byte* stage, int first_row, int g,
                                                     int t) {
    Right right;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Words4 words = *reinterpret_cast<const Words4*>(stage + C::kCodesAt +
                                                            codes_at(first_row + g, 2 * t + i));
#pragma unroll
      for (int w = 0; w < 4; ++w) right.codes[2 * i + w / 2][w % 2] = words.at[w];
    }
    right.range = *reinterpret_cast<const Words4*>(
        stage + C::kRangesAt + (first_row + 2 * t) * static_cast<int>(sizeof(Int8Range)));
    return right;
  }

  template <typename C>
  __device__ __forceinline__ static void multiply(const Work&, int /*part*/, bool ends_group,
                                                  const std::byte* stage, const TileLane& lane,
                                                  TileOutputs<C>& out) {
    Left left[C::kHalves];
#pragma unroll
    for (int half = 0; half < C::kHalves; ++half) {
      load_left(stage + (lane.first_panel<C>() + half * 2 + lane.g / 4) * C::kPanelBytes, lane.g,
                lane.t, left[half]);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const Right right = load_right<C>(stage, lane.first_row<C>() + 8 * n, lane.g, lane.t);
#pragma unroll
      for (int m = 0; m < 2 * C::kHalves; ++m) {
        float(&total)[4] = out.at[m][n];
        if constexpr (kSplit) {
          std::int32_t(&sums)[4] = out.sums[m][n];
#pragma unroll
          for (int p = 0; p < 4; ++p) mma_u8_s8(sums, left[m / 2][m % 2][p], right.codes[p]);
          if (!ends_group) continue;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const auto sum = static_cast<float>(sums[i] + right.start(i));
            total[i] = rounded_sum(total[i], rounded_product(sum, right.scale(i)));
            sums[i] = 0;
          }
        } else {
          std::int32_t sums[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] = right.start(i);
#pragma unroll
          for (int p = 0; p < 4; ++p) mma_u8_s8(sums, left[m / 2][m % 2][p], right.codes[p]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            total[i] =
                rounded_sum(total[i], rounded_product(float_of_sum(sums[i]), right.scale(i)));
          }
        }
      }
    }
  }
};

}  // namespace

void int8_tiles(Stream& stream, const Int8Work& work) {
  if (work.group == kPartInputs) return run_tiles<Int8Tiles<false>>(stream, "linear: int8", work);
  run_tiles<Int8Tiles<true>>(stream, "linear: int8", work);
}

}  // namespace longhaul::cuda
