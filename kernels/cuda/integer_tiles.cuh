// What the kernels of linear with int8 and int4 weights for many rows (prefill) share, on the
// tensor cores of compute capability 8.0 and up. A warp has 32 or 64 outputs of 64 rows and keeps
// their sums in registers, while weights and codes come part by part: a thread block copies them to
// shared memory kStages - 1 ahead. A format says what a stage holds and multiplies it
// (int8_tiles.cu, int4_tiles.cu):
//
//   Work            Int8Work or Int4Work
//   kPartLines      lines of a panel that hold the weights of a part
//   kScaleBytes     bytes of scales of a panel that come with them
//   kGroupsAreParts groups of activations are known to be one part each
//   kKeepsSums      beside the outputs a warp keeps integers, of a group's parts so far
//   n_lines(work)   of a panel, from the first on
//   codes_at(row, chunk)  where 16 bytes of a row's codes lie, from the codes' begin
//   multiply<C>(work, part, ends_group, stage, lane, out)  adds the part's products to the outputs
#pragma once
#include "kernels/cuda/integer_linear.cuh"
#include "kernels/cuda/reduce.cuh"

namespace longhaul::cuda {

// kWide: a warp has 64 outputs, and all registers; else 32, and room for twice as many warps.
template <typename Of, int kOutWarps, int kTokenWarps, int kDeep, bool kWide>
struct TileConfig {
  using Format = Of;
  static constexpr int kHalves = kWide && !Of::kKeepsSums ? 2 : 1;  // of 32 outputs, of a warp
  static constexpr int kOutputWarps = kOutWarps;
  static constexpr int kThreads = kOutWarps * kTokenWarps * kWarp;
  // Thread blocks that a multiprocessor must have registers for.
  static constexpr int kMinBlocks = kWide || Of::kKeepsSums ? 1 : 16 * kWarp / kThreads;
  static constexpr int kWarpPanels = 2 * kHalves;
  static constexpr int kPanels = kOutWarps * kWarpPanels;
  static constexpr int kOutputs = kPanels * kPanelOutputs;
  static constexpr int kRows = kTokenWarps * 64;
  static constexpr int kStages = kDeep;
  // Bytes from the stage's begin.
  static constexpr int kPanelBytes = Of::kPartLines * kLineBytes;
  static constexpr int kScalesAt = kPanels * kPanelBytes;
  static constexpr int kCodesAt = kScalesAt + kPanels * Of::kScaleBytes;
  static constexpr int kRangesAt = kCodesAt + kRows * kPartInputs;
  static constexpr int kStageBytes = kRangesAt + kRows * static_cast<int>(sizeof(Int8Range));
};

// Where 16 bytes of 4 outputs of a line lie in shared memory, from the panel's begin: 8 lanes that
// read together, two quads of 4 lines, find them in different banks.
__device__ __forceinline__ int weight_at(int line, int quad) {
  const int pair = line / 2;
  return pair * 128 + ((line % 2 * 4 + quad) ^ (pair % 2 * 2)) * 16;
}

// What a thread copies of each part, part after part. Where its pieces come from and go to differs
// from part to part by the same number of bytes, so little is left to be computed for one.
template <typename C>
class TileLoader {
  using Format = typename C::Format;
  using Work = typename Format::Work;

 public:
  __device__ __forceinline__ TileLoader(const Work& work, std::byte* shared)
      : work_(work),
        shared_(shared),
        n_left_(static_cast<int>(work.n_parts)),
        panel_stride_(static_cast<int>(kPanelsAtOnce * work.panel_bytes)),
        row_stride_(static_cast<int>(kRowsAtOnce * work.n_parts * kPartInputs)),
        group_stride_(static_cast<int>(work.range_rows)),
        parts_of_group_(static_cast<int>(work.parts_of_group)) {
    const int thread = static_cast<int>(threadIdx.x);
    const int panel = thread / kPanelChunks;
    const int line = thread % kPanelChunks / 4;
    const std::int64_t first_panel = static_cast<std::int64_t>(blockIdx.y) * C::kPanels + panel;
    weights_ = work.weight + first_panel * work.panel_bytes + thread % kPanelChunks * 16;
    weights_to_ = panel * C::kPanelBytes + weight_at(line, thread % 4);
    n_lines_ = static_cast<int>(Format::n_lines(work)) - line;
    n_panels_ = static_cast<int>(work.n_panels - first_panel);
    const int row = thread / kRowChunks;
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * C::kRows;
    codes_ = reinterpret_cast<const std::byte*>(work.codes) +
             (first_row + row) * work.n_parts * kPartInputs + thread % kRowChunks * 16;
    codes_to_ = C::kCodesAt + Format::codes_at(row, thread % kRowChunks);
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
      if constexpr (Format::kScaleBytes > 0) load_scales(stage);
      load_rows(stage);
      if (has_ranges_)
        copy_async_16(stage + C::kRangesAt + 16 * threadIdx.x, ranges_, ranges_exist_);
      stage_ = stage_ == C::kStages - 1 ? 0 : stage_ + 1;
      --n_left_;
      weights_ += C::kPanelBytes;
      codes_ += kPartInputs;
      n_lines_ -= Format::kPartLines;
      if (Format::kGroupsAreParts || ++n_of_group_ == parts_of_group_) {
        ranges_ += group_stride_;
        n_of_group_ = 0;
      }
    }
    commit_copies();
  }

 private:
  static constexpr int kPanelChunks = C::kPanelBytes / 16;
  static constexpr int kRowChunks = kPartInputs / 16;
  // All threads together copy so many panels at once, or a panel in so many turns; and rows.
  static constexpr int kPanelsAtOnce = C::kThreads > kPanelChunks ? C::kThreads / kPanelChunks : 1;
  static constexpr int kTurnsOfPanel = C::kThreads < kPanelChunks ? kPanelChunks / C::kThreads : 1;
  static constexpr int kTurnBytes = C::kPanelBytes / kTurnsOfPanel;
  static constexpr int kTurnLines = Format::kPartLines / kTurnsOfPanel;
  static constexpr int kRowsAtOnce = C::kThreads / kRowChunks;
  static_assert(kPanelsAtOnce * kPanelChunks == kTurnsOfPanel * C::kThreads);
  // So that what codes_at and weight_at make of the rows and lines that follow is the same.
  static_assert(kRowsAtOnce % 4 == 0 && kTurnLines % 4 == 0);

  __device__ __forceinline__ void load_weights(std::byte* stage) const {
#pragma unroll
    for (int i = 0; i < C::kPanels / kPanelsAtOnce; ++i) {
#pragma unroll
      for (int turn = 0; turn < kTurnsOfPanel; ++turn) {
        copy_async_16(stage + weights_to_ + i * kPanelsAtOnce * C::kPanelBytes + turn * kTurnBytes,
                      weights_ + std::int64_t{i} * panel_stride_ + turn * kTurnBytes,
                      i * kPanelsAtOnce < n_panels_ && turn * kTurnLines < n_lines_);
      }
    }
  }
  // 16 bytes, of half of a run's outputs, by each of the first threads.
  __device__ __forceinline__ void load_scales(std::byte* stage) const {
    constexpr int kPanelScaleChunks = Format::kScaleBytes / 16;
    constexpr int kChunks = C::kPanels * kPanelScaleChunks;
    static_assert(kChunks <= C::kThreads);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= kChunks) return;
    const std::int64_t panel =
        static_cast<std::int64_t>(blockIdx.y) * C::kPanels + thread / kPanelScaleChunks;
    const int run =
        static_cast<int>(work_.n_parts - n_left_) * kPartRuns + thread % kPanelScaleChunks / 2;
    copy_async_16(stage + C::kScalesAt + 16 * thread,
                  work_.scales_of(panel, run) + thread % 2 * (kPanelOutputs / 2),
                  panel < work_.n_panels && run * kInt4Run < work_.n_in);
  }
  __device__ __forceinline__ void load_rows(std::byte* stage) const {
#pragma unroll
    for (int i = 0; i < C::kRows / kRowsAtOnce; ++i) {
      copy_async_16(stage + codes_to_ + i * kRowsAtOnce * kPartInputs,
                    codes_ + std::int64_t{i} * row_stride_, i * kRowsAtOnce < n_rows_);
    }
  }

  const Work& work_;
  std::byte* shared_;
  int stage_ = 0;
  int n_left_;  // parts
  const std::uint8_t* weights_;
  int panel_stride_;
  int weights_to_;
  int n_panels_;  // from this thread's first one on
  int n_lines_;   // from this thread's first one of the part on
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

// A lane, 4g + t of its warp.
struct TileLane {
  int warp;
  int g;
  int t;

  template <typename C>
  __device__ __forceinline__ int first_panel() const {
    return warp % C::kOutputWarps * C::kWarpPanels;
  }
  template <typename C>
  __device__ __forceinline__ int first_row() const {
    return warp / C::kOutputWarps * 64;
  }
};

// A lane's part of its warp's outputs x 64 rows. Of each 32 outputs lane 4g + t has outputs 4g to
// 4g + 3, two of them in each of two products; of each 8 rows 2t and 2t + 1.
template <typename C>
struct TileOutputs {
  float at[2 * C::kHalves][8][4];                          // [pair of outputs, 8 rows, as in mma]
  std::int32_t sums[C::Format::kKeepsSums ? 2 : 1][8][4];  // of the group's parts so far
};

template <typename C>
__device__ __forceinline__ void store_outputs(const typename C::Format::Work& work,
                                              const TileLane& lane, const TileOutputs<C>& out) {
  const std::int64_t first_lane = static_cast<std::int64_t>(blockIdx.y) * C::kOutputs +
                                  lane.first_panel<C>() * kPanelOutputs + 4 * lane.g;
  const std::int64_t first_row =
      static_cast<std::int64_t>(blockIdx.x) * C::kRows + lane.first_row<C>() + 2 * lane.t;
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
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    integer_tiles_kernel(typename C::Format::Work work) {
  std::byte* shared = shared_memory();
  const int thread = static_cast<int>(threadIdx.x);
  const TileLane lane = {thread / kWarp, thread % kWarp / 4, thread % 4};
  TileOutputs<C> out = {};
  int n_of_group = 0;  // parts of a group that have come
  TileLoader<C> loader(work, shared);
  for (int i = 0; i < C::kStages - 1; ++i) loader.load_next();
  int stage = 0;
  const auto n_parts = static_cast<int>(work.n_parts);
  for (int part = 0; part < n_parts; ++part) {
    wait_for_copies<C::kStages - 2>();
    // The part's copies by all threads are done before any of them reads it; and all are done with
    // the part before, whose stage is filled next.
    __syncthreads();
    loader.load_next();
    const bool ends_group = ++n_of_group == work.parts_of_group;
    C::Format::template multiply<C>(work, part, ends_group, shared + stage * C::kStageBytes, lane,
                                    out);
    stage = stage == C::kStages - 1 ? 0 : stage + 1;
    if (ends_group) n_of_group = 0;
  }
  store_outputs<C>(work, lane, out);
}

// By tiles as large as the rows and outputs fill the chip with.
template <typename Format>
void run_tiles(Stream& stream, const char* name, const typename Format::Work& work) {
  using Large = TileConfig<Format, 4, 2, 3, true>;
  using LargeInLess = TileConfig<Format, 4, 2, 2, true>;  // of chips of capability 8.6 and 8.9
  using Small = TileConfig<Format, 2, 1, 3, false>;
  const auto run = [&]<typename C>(const C&) {
    launch(stream, name, integer_tiles_kernel<C>,
           {.x = ceil_div(work.n_rows, C::kRows),
            .y = ceil_div(work.n_panels, C::kPanels),
            .block = C::kThreads,
            .shared_bytes = std::size_t{C::kStages} * C::kStageBytes},
           work);
  };
  const DeviceInfo& device = stream.device();
  const std::int64_t n_large =
      ceil_div(work.n_rows, Large::kRows) * ceil_div(work.n_panels, Large::kPanels);
  if (n_large < device.n_multiprocessors) return run(Small());
  if (device.shared_bytes >= std::size_t{Large::kStages} * Large::kStageBytes) return run(Large());
  run(LargeInLess());
}

}  // namespace longhaul::cuda
