// linear with int8 weights for many rows (prefill), on the tensor cores of compute capability 8.0
// and up. A warp has 32 or 64 outputs of 64 rows: it keeps the weights of a group in registers, and
// for 8 rows at a time multiplies them exactly, scales the sums and adds them to its outputs.
// Groups are copied to shared memory kStages - 1 ahead. Larger groups (kSplit) come in parts, whose
// sums stay in registers until the group ends, so a warp has 32 outputs.
#include "kernels/cuda/int8_linear.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {
namespace {

// kWide: a warp has 64 outputs, and all registers; else 32, and room for twice as many warps.
template <int kOutWarps, int kTokenWarps, int kDeep, bool kWide, bool kSplitGroups>
struct Config {
  static constexpr bool kSplit = kSplitGroups;
  static constexpr int kHalves = kWide && !kSplit ? 2 : 1;  // of 32 outputs, of a warp
  static constexpr int kOutputWarps = kOutWarps;
  static constexpr int kThreads = kOutWarps * kTokenWarps * kWarp;
  // Thread blocks that a multiprocessor must have registers for.
  static constexpr int kMinBlocks = kWide || kSplit ? 1 : 16 * kWarp / kThreads;
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

// What a thread copies of each part, part after part. Where its pieces come from and go to differs
// from part to part by the same number of bytes, so little is left to be computed for one.
template <typename C>
class Loader {
 public:
  __device__ __forceinline__ Loader(const Int8Work& work, std::byte* shared)
      : shared_(shared),
        n_left_(static_cast<int>(work.n_parts)),
        panel_stride_(static_cast<int>(kPanelsAtOnce * work.panel_bytes)),
        row_stride_(static_cast<int>(kRowsAtOnce * work.n_parts * kInt8Group)),
        group_stride_(static_cast<int>(work.range_rows)),
        parts_of_group_(static_cast<int>(work.parts_of_group)) {
    const int thread = static_cast<int>(threadIdx.x);
    const int panel = thread / kPanelChunks;
    const int step = thread % kPanelChunks / 4;
    const std::int64_t first_panel = static_cast<std::int64_t>(blockIdx.y) * C::kPanels + panel;
    weights_ = work.weight + first_panel * work.panel_bytes + thread % kPanelChunks * 16;
    weights_to_ = panel * kGroupBytes + weight_at(step, thread % 4);
    n_steps_ = static_cast<int>(work.n_steps) - step;
    n_panels_ = static_cast<int>(work.n_panels - first_panel);
    const int row = thread / kRowChunks;
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * C::kRows;
    codes_ = reinterpret_cast<const std::byte*>(work.codes) +
             (first_row + row) * work.n_parts * kInt8Group + thread % kRowChunks * 16;
    codes_to_ = C::kCodesAt + codes_at(row, thread % kRowChunks);
    n_rows_ = static_cast<int>(work.n_rows - first_row) - row;
    has_ranges_ = thread < C::kRows / 2;
    ranges_ = work.ranges + first_row + 2 * thread;
    ranges_exist_ = first_row + 2 * thread < work.range_rows;
  }

  // Begins with the next part, if there is one.
  __device__ __forceinline__ void load_next() {
    if (n_left_ > 0) {
      std::byte* stage = shared_ + stage_ * C::kStageBytes;
      load_weights(stage);
      load_rows(stage);
      if (has_ranges_)
        copy_async_16(stage + C::kRangesAt + 16 * threadIdx.x, ranges_, ranges_exist_);
      stage_ = stage_ == C::kStages - 1 ? 0 : stage_ + 1;
      --n_left_;
      weights_ += kGroupBytes;
      codes_ += kInt8Group;
      n_steps_ -= kGroupSteps;
      if (!C::kSplit || ++n_of_group_ == parts_of_group_) {
        ranges_ += group_stride_;
        n_of_group_ = 0;
      }
    }
    commit_copies();
  }

 private:
  static constexpr int kPanelChunks = kGroupBytes / 16;
  static constexpr int kRowChunks = static_cast<int>(kInt8Group) / 16;
  // All threads together copy so many panels at once, or a panel in so many turns; and rows.
  static constexpr int kPanelsAtOnce = C::kThreads > kPanelChunks ? C::kThreads / kPanelChunks : 1;
  static constexpr int kTurnsOfPanel = C::kThreads < kPanelChunks ? kPanelChunks / C::kThreads : 1;
  static constexpr int kTurnBytes = kGroupBytes / kTurnsOfPanel;
  static constexpr int kRowsAtOnce = C::kThreads / kRowChunks;
  static_assert(kPanelsAtOnce * kPanelChunks == kTurnsOfPanel * C::kThreads);
  // So that what codes_at and weight_at make of the rows and steps that follow is the same.
  static_assert(kRowsAtOnce % 2 == 0 && kGroupSteps / kTurnsOfPanel % 4 == 0);

  __device__ __forceinline__ void load_weights(std::byte* stage) const {
#pragma unroll
    for (int i = 0; i < C::kPanels / kPanelsAtOnce; ++i) {
#pragma unroll
      for (int turn = 0; turn < kTurnsOfPanel; ++turn) {
        copy_async_16(
            stage + weights_to_ + i * kPanelsAtOnce * kGroupBytes + turn * kTurnBytes,
            weights_ + std::int64_t{i} * panel_stride_ + turn * kTurnBytes,
            i * kPanelsAtOnce < n_panels_ && turn * (kGroupSteps / kTurnsOfPanel) < n_steps_);
      }
    }
  }
  __device__ __forceinline__ void load_rows(std::byte* stage) const {
#pragma unroll
    for (int i = 0; i < C::kRows / kRowsAtOnce; ++i) {
      copy_async_16(stage + codes_to_ + i * kRowsAtOnce * static_cast<int>(kInt8Group),
                    codes_ + std::int64_t{i} * row_stride_, i * kRowsAtOnce < n_rows_);
    }
  }

  std::byte* shared_;
  int stage_ = 0;
  int n_left_;  // parts
  const std::uint8_t* weights_;
  int panel_stride_;
  int weights_to_;
  int n_panels_;  // from this thread's first one on
  int n_steps_;   // from this thread's first one of the part on
  const std::byte* codes_;
  int row_stride_;
  int codes_to_;
  int n_rows_;  // from this thread's first one on
  const Int8Range* ranges_;
  int group_stride_;
  bool has_ranges_;
  bool ranges_exist_;
  int parts_of_group_;
  int n_of_group_ = 0;  // parts of it that were begun
};

// A thread's part of its warp's outputs x 64 rows. Of each 32 outputs lane 4g + t has outputs 4g to
// 4g + 3, two of them in each of two products; of each 8 rows 2t and 2t + 1.
template <typename C>
struct Outputs {
  float at[2 * C::kHalves][8][4];              // [pair of outputs, 8 rows, as in the product]
  std::int32_t sums[C::kSplit ? 2 : 1][8][4];  // of the group's parts so far
};

// What a lane multiplies of 32 outputs of a group: [pair of outputs, product along the group].
using Left = std::uint32_t[2][4][4];

__device__ __forceinline__ void load_left(const std::byte* panel, int g, int t, Left& left) {
  // The four words of a left side must be neighbouring registers. Loads give them in another order,
  // and moves would be made again before each product; a bit operation with 0, which the compiler
  // does not know, is made once.
  const std::uint32_t zero = threadIdx.z;
#pragma unroll
  for (int i = 0; i < kGroupSteps / 4; ++i) {
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

template <typename C>
__device__ __forceinline__ Right load_right(const std::byte* stage, int first_row, int g, int t) {
  Right right;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Words4 words =
        *reinterpret_cast<const Words4*>(stage + C::kCodesAt + codes_at(first_row + g, 2 * t + i));
#pragma unroll
    for (int w = 0; w < 4; ++w) right.codes[2 * i + w / 2][w % 2] = words.at[w];
  }
  right.range = *reinterpret_cast<const Words4*>(
      stage + C::kRangesAt + (first_row + 2 * t) * static_cast<int>(sizeof(Int8Range)));
  return right;
}

// ends_group: it is the last stage of its group.
template <typename C>
__device__ __forceinline__ void multiply_stage(const std::byte* stage, int warp, int g, int t,
                                               bool ends_group, Outputs<C>& out) {
  Left left[C::kHalves];
#pragma unroll
  for (int half = 0; half < C::kHalves; ++half) {
    load_left(stage + (warp % C::kOutputWarps * C::kWarpPanels + half * 2 + g / 4) * kGroupBytes, g,
              t, left[half]);
  }
  const int first_row = warp / C::kOutputWarps * 64;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const Right right = load_right<C>(stage, first_row + 8 * n, g, t);
#pragma unroll
    for (int m = 0; m < 2 * C::kHalves; ++m) {
      float(&total)[4] = out.at[m][n];
      if constexpr (C::kSplit) {
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
          total[i] = rounded_sum(total[i], rounded_product(float_of_sum(sums[i]), right.scale(i)));
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
  const auto n_rows = static_cast<int>(work.n_rows - first_row);
#pragma unroll
  for (int q = 0; q < 4 * C::kHalves; ++q) {
    const LaneOutput to(work, first_lane + q / 4 * 32 + q % 4);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * n + e < n_rows) {
          to.store(work, first_row + 8 * n + e, out.at[q / 2][n][q % 2 * 2 + e]);
        }
      }
    }
  }
}

// grid.x: kRows rows; grid.y: kOutputs lanes. Rows change first, so that weights are read from
// memory once while all rows pass. Shared: kStages kStageBytes.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks) tiles_kernel(Int8Work work) {
  std::byte* shared = shared_memory();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  Outputs<C> out = {};
  int n_of_group = 0;  // parts of a group that have come
  Loader<C> loader(work, shared);
  for (int i = 0; i < C::kStages - 1; ++i) loader.load_next();
  int stage = 0;
  for (auto n_left = static_cast<int>(work.n_parts); n_left > 0; --n_left) {
    wait_for_copies<C::kStages - 2>();
    // The part's copies by all threads are done before any of them reads it; and all are done with
    // the part before, whose stage is filled next.
    __syncthreads();
    loader.load_next();
    const bool ends_group = ++n_of_group == work.parts_of_group;
    multiply_stage<C>(shared + stage * C::kStageBytes, warp, g, t, ends_group, out);
    stage = stage == C::kStages - 1 ? 0 : stage + 1;
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
  using Large = Config<4, 2, 3, true, kSplit>;
  using LargeInLess = Config<4, 2, 2, true, kSplit>;  // of chips of capability 8.6 and 8.9
  using Small = Config<2, 1, 3, false, kSplit>;
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
