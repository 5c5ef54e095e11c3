// linear with int8 weights for many rows (prefill), on the tensor cores of compute capability 8.0
// and up. A warp has 64 outputs of 64 rows: it keeps the weights of a group in registers, and for 8
// rows at a time multiplies them exactly, scales the sums and adds them to its outputs. Groups are
// copied to shared memory kStages - 1 ahead. Larger groups (kSplit) come in parts, whose sums stay
// in registers until the group ends, so a warp has 32 outputs.
#include "kernels/cuda/int8_linear.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {
namespace {

template <int kOutWarps, int kTokenWarps, int kDeep, bool kSplitGroups>
struct Config {
  static constexpr bool kSplit = kSplitGroups;
  static constexpr int kHalves = kSplit ? 1 : 2;  // of 32 outputs, of a warp
  static constexpr int kOutputWarps = kOutWarps;
  static constexpr int kThreads = kOutWarps * kTokenWarps * kWarp;
  static constexpr int kWarpPanels = 2 * kHalves;
  static constexpr int kPanels = kOutWarps * kWarpPanels;
  static constexpr int kOutputs = kPanels * kPanelOutputs;
  static constexpr int kRows = kTokenWarps * 64;
  static constexpr int kStages = kDeep;
  // Bytes from the stage's begin.
  static constexpr int kCodesAt = kPanels * kGroupBytes;
  static constexpr int kRangesAt = kCodesAt + kRows * static_cast<int>(kInt8Group);
  static constexpr int kStageBytes = kRangesAt + kRows * static_cast<int>(sizeof(Int8Range));
};

// Where 16 bytes of 4 outputs of a step lie in shared memory, from the panel's begin: 8 lanes that
// read together, two quads of 4 steps, find them in different banks.
__device__ __forceinline__ int weight_at(int step, int quad) {
  const int line = step / 2;
  return line * 128 + ((step % 2 * 4 + quad) ^ (line % 2 * 2)) * 16;
}
// 16 bytes of a row's codes, from the codes' begin. 8 lanes read every other one of two rows.
__device__ __forceinline__ int codes_at(int row, int chunk) {
  return row * static_cast<int>(kInt8Group) + (chunk ^ (row % 2)) * 16;
}

template <typename C>
__device__ __forceinline__ void load_stage(const Int8Work& work, std::int64_t part,
                                           std::byte* stage) {
  const std::int64_t first_panel = static_cast<std::int64_t>(blockIdx.y) * C::kPanels;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * C::kRows;
  if (part < work.n_parts) {
    constexpr int kPanelChunks = kGroupBytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < C::kPanels * kPanelChunks; i += C::kThreads) {
      const int panel = i / kPanelChunks;
      const int step = i % kPanelChunks / 4;
      const bool exists =
          first_panel + panel < work.n_panels && part * kGroupSteps + step < work.n_steps;
      const std::uint8_t* from = work.weight + (first_panel + panel) * work.panel_bytes +
                                 part * kGroupBytes + i % kPanelChunks * 16;
      copy_async_16(stage + panel * kGroupBytes + weight_at(step, i % 4),
                    exists ? from : work.weight, exists);
    }
    constexpr int kRowChunks = static_cast<int>(kInt8Group) / 16;
    for (int i = static_cast<int>(threadIdx.x); i < C::kRows * kRowChunks; i += C::kThreads) {
      const int row = i / kRowChunks;
      const int chunk = i % kRowChunks;
      const bool exists = first_row + row < work.n_rows;
      const std::uint32_t* from =
          work.codes + ((first_row + row) * work.n_parts + part) * kGroupSteps + 4 * chunk;
      copy_async_16(stage + C::kCodesAt + codes_at(row, chunk), exists ? from : work.codes, exists);
    }
    const auto group = C::kSplit ? static_cast<int>(part) / static_cast<int>(work.parts_of_group)
                                 : static_cast<int>(part);
    for (int i = static_cast<int>(threadIdx.x); i < C::kRows / 2; i += C::kThreads) {
      const bool exists = first_row + 2 * i < work.range_rows;
      const Int8Range* from = work.ranges + group * work.range_rows + first_row + 2 * i;
      copy_async_16(stage + C::kRangesAt + 16 * i, exists ? from : work.ranges, exists);
    }
  }
  commit_copies();
}

// A thread's part of its warp's outputs x 64 rows. Of each 32 outputs lane 4g + t has outputs 4g to
// 4g + 3, two of them in each of two products; of each 8 rows 2t and 2t + 1.
template <typename C>
struct Outputs {
  float at[C::kHalves][2][8][4];  // [32 outputs, pair of outputs, 8 rows, as in the product]
  std::int32_t sums[C::kSplit ? C::kHalves : 1][2][8][4];  // of the group's parts so far
};

// ends_group: it is the last stage of its group.
template <typename C>
__device__ __forceinline__ void multiply_stage(const std::byte* stage, int warp, int g, int t,
                                               bool ends_group, Outputs<C>& out) {
  std::uint32_t left[C::kHalves][2][4][4];
#pragma unroll
  for (int half = 0; half < C::kHalves; ++half) {
    const std::byte* panel =
        stage + (warp % C::kOutputWarps * C::kWarpPanels + half * 2 + g / 4) * kGroupBytes;
#pragma unroll
    for (int i = 0; i < kGroupSteps / 4; ++i) {
      const Words4 words = *reinterpret_cast<const Words4*>(panel + weight_at(4 * i + t, g % 4));
#pragma unroll
      for (int q = 0; q < 4; ++q) left[half][q / 2][i / 2][i % 2 * 2 + q % 2] = words.at[q];
    }
  }
  const int first_row = warp / C::kOutputWarps * 64;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    std::uint32_t right[4][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Words4 words = *reinterpret_cast<const Words4*>(
          stage + C::kCodesAt + codes_at(first_row + 8 * n + g, 2 * t + i));
#pragma unroll
      for (int w = 0; w < 4; ++w) right[2 * i + w / 2][w % 2] = words.at[w];
    }
    const Words4 range = *reinterpret_cast<const Words4*>(
        stage + C::kRangesAt + (first_row + 8 * n + 2 * t) * static_cast<int>(sizeof(Int8Range)));
#pragma unroll
    for (int m = 0; m < 2 * C::kHalves; ++m) {
      float(&sums)[4] = out.at[m / 2][m % 2][n];
      if constexpr (C::kSplit) {
        std::int32_t(&c)[4] = out.sums[m / 2][m % 2][n];
#pragma unroll
        for (int p = 0; p < 4; ++p) mma_u8_s8(c, left[m / 2][m % 2][p], right[p]);
        if (!ends_group) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto sum = c[i] + static_cast<std::int32_t>(range.at[i % 2 * 2 + 1]);
          sums[i] = rounded_sum(sums[i], rounded_product(static_cast<float>(sum),
                                                         __uint_as_float(range.at[i % 2 * 2])));
          c[i] = 0;
        }
      } else {
        std::int32_t c[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) c[i] = static_cast<std::int32_t>(range.at[i % 2 * 2 + 1]);
#pragma unroll
        for (int p = 0; p < 4; ++p) mma_u8_s8(c, left[m / 2][m % 2][p], right[p]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] = rounded_sum(
              sums[i], rounded_product(float_of_sum(c[i]), __uint_as_float(range.at[i % 2 * 2])));
        }
      }
    }
  }
}

template <typename C>
__device__ __forceinline__ void store_outputs(const Int8Work& work, int warp, int g, int t,
                                              const Outputs<C>& out) {
  const std::int64_t first_lane = static_cast<std::int64_t>(blockIdx.y) * C::kOutputs +
                                  warp % C::kOutputWarps * C::kWarpPanels * kPanelOutputs + 4 * g;
  const std::int64_t first_row =
      static_cast<std::int64_t>(blockIdx.x) * C::kRows + warp / C::kOutputWarps * 64 + 2 * t;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const std::int64_t row = first_row + 8 * n + e;
      if (row >= work.n_rows) continue;
#pragma unroll
      for (int half = 0; half < C::kHalves; ++half) {
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          store_output(work, row, first_lane + 32 * half + q,
                       out.at[half][q / 2][n][q % 2 * 2 + e]);
        }
      }
    }
  }
}

// grid.x: kRows rows; grid.y: kOutputs lanes. Rows change first, so that weights are read from
// memory once while all rows pass. Shared: kStages kStageBytes.
template <typename C>
__global__ void __launch_bounds__(C::kThreads) tiles_kernel(Int8Work work) {
  std::byte* shared = shared_memory();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  Outputs<C> out = {};
  const auto stage_of = [&](std::int64_t part) {
    return shared + part % C::kStages * C::kStageBytes;
  };
  std::int64_t n_of_group = 0;  // parts of a group that have come
  for (int i = 0; i < C::kStages - 1; ++i) load_stage<C>(work, i, stage_of(i));
  for (std::int64_t part = 0; part < work.n_parts; ++part) {
    wait_for_copies<C::kStages - 2>();
    // The part's copies by all threads are done before any of them reads it; and all are done with
    // the part before, whose stage is filled next.
    __syncthreads();
    load_stage<C>(work, part + C::kStages - 1, stage_of(part + C::kStages - 1));
    const bool ends_group = ++n_of_group == work.parts_of_group;
    multiply_stage<C>(stage_of(part), warp, g, t, ends_group, out);
    if (ends_group) n_of_group = 0;
  }
  store_outputs<C>(work, warp, g, t, out);
}

template <typename C>
void run(Stream& stream, const Int8Work& work) {
  launch(stream, "linear: int8", tiles_kernel<C>,
         {.x = ceil_div(work.n_rows, C::kRows),
          .y = ceil_div(work.n_panels, C::kPanels),
          .block = C::kThreads,
          .shared_bytes = std::size_t{C::kStages} * C::kStageBytes},
         work);
}

template <bool kSplit>
void run_tiles(Stream& stream, const Int8Work& work) {
  using Large = Config<4, 2, 3, kSplit>;
  using LargeInLess = Config<4, 2, 2, kSplit>;  // of chips of capability 8.6 and 8.9
  using Small = Config<2, 1, 3, kSplit>;
  const DeviceInfo& device = stream.device();
  const std::int64_t n_large =
      ceil_div(work.n_rows, Large::kRows) * ceil_div(work.n_panels, Large::kPanels);
  if (n_large < device.n_multiprocessors) return run<Small>(stream, work);
  if (device.shared_bytes >= std::size_t{Large::kStages} * Large::kStageBytes) {
    return run<Large>(stream, work);
  }
  run<LargeInLess>(stream, work);
}

}  // namespace

void int8_tiles(Stream& stream, const Int8Work& work) {
  if (work.group == kInt8Group) return run_tiles<false>(stream, work);
  run_tiles<true>(stream, work);
}

}  // namespace longhaul::cuda
