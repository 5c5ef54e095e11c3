// How products with quantised activations are cut, for int8_linear.cc and int4_linear.cc: 64 lanes
// of weights at a time, in blocks of inputs. A block's weights (128 KiB of int8) stay in the second
// cache while all rows pass, and a group of it (8 KiB for a group of 128) in the first while some
// rows do. Few rows wait for memory, which is fastest in its own order: one panel after the other,
// or several side by side (streams.h), meet them with all their inputs.
//
// A Format says: Task (kernels/cpu/isa/int8_linear.h, int4_linear.h); kMostRows of a tile;
// kBytesAheadInBlocks, of each panel; inputs(task); multiply_tile<kRows, kPanels>(task, tile);
// prefetch(task, tile, ...) before rows in blocks are multiplied; finish(task, lane) once the sums
// of the lanes from `lane` on are whole.
#pragma once
#include <cstdint>

#include "base/int8_format.h"
#include "kernels/cpu/isa/int8_linear.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/streams.h"
#include "kernels/cpu/isa/whole_numbers.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kPanelVectors = static_cast<int>(kInt8Panel) / kWidth;
constexpr std::int64_t kGroupRows = 48;      // whose integers of a group (6 KiB) pass together
constexpr std::int64_t kBlockInputs = 2048;  // a multiple of the usual groups
constexpr std::int64_t kBytesAheadInOrder = 8192;  // of a panel alone

struct GroupedInputs {
  std::int64_t n_in;
  std::int64_t group;
};

// What a tile works on, at its first row and panel: groups of inputs that follow each other.
struct GroupTile {
  std::int64_t group_begin;
  std::int64_t group_end;
  std::int64_t row;
  std::int64_t panel;
  float* c;                  // [rows, kInt8TileLanes]; begun by group 0
  std::int64_t bytes_ahead;  // how far ahead it asks memory for weights, in each panel
  bool asks_for_next;        // in the last group of inputs: for the panels of the next tile
};

// So many panels side by side keep their sums of so many rows in registers.
constexpr int panels_beside(int rows) {
  return kWidth == 16 ? 4 : kWidth == 8 && rows <= 2 ? 4 / rows : 1;
}
constexpr int panels_of(int rows, bool in_order) {
  return in_order && kStreams == 1 ? 1 : panels_beside(rows);
}

// What the groups of inputs before have added up to, in a tile's c; in registers meanwhile where
// one panel leaves them free.
template <int kRows, int kVectors>
class TileSums {
 public:
  LONGHAUL_INLINE explicit TileSums(const GroupTile& tile) : c_(tile.c) {
    if (!kHeld || tile.group_begin == 0) return;
    each_place([&](int r, int v) { held_[r][v] = load(at(r, v)); });
  }
  LONGHAUL_INLINE void add(int r, int v, Vec x, bool is_first) {
    if constexpr (kHeld) {
      held_[r][v] = is_first ? x : held_[r][v] + x;
    } else {
      store(at(r, v), is_first ? x : load(at(r, v)) + x);
    }
  }
  LONGHAUL_INLINE void finish() const {
    if constexpr (kHeld) each_place([&](int r, int v) { store(at(r, v), held_[r][v]); });
  }

 private:
  static constexpr bool kHeld = kRows * kVectors <= (kWidth == 16 ? 6 : 4);

  template <typename Visit>
  static LONGHAUL_INLINE void each_place(const Visit& visit) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) visit(r, v);
    }
  }
  LONGHAUL_INLINE float* at(int r, int v) const { return c_ + r * kInt8TileLanes + v * kWidth; }

  float* c_;
  Vec held_[kRows][kVectors] = {};
};

template <typename Format, bool kInOrder, int kRows>
void multiply_panels(const typename Format::Task& task, GroupTile tile, std::int64_t n_panels) {
  constexpr int kPanels = panels_of(kRows, kInOrder);
  for (; n_panels >= kPanels; n_panels -= kPanels) {
    Format::template multiply_tile<kRows, kPanels>(task, tile);
    tile.panel += kPanels;
    tile.c += kPanels * kInt8Panel;
  }
  for (; n_panels > 0; --n_panels, ++tile.panel, tile.c += kInt8Panel)
    Format::template multiply_tile<kRows, 1>(task, tile);
}

template <typename Format, bool kInOrder, int kRows>
LONGHAUL_INLINE void multiply_some(const typename Format::Task& task, const GroupTile& tile,
                                   int n_rows, std::int64_t n_panels) {
  if (n_rows == kRows) {
    multiply_panels<Format, kInOrder, kRows>(task, tile, n_panels);
  } else if constexpr (kRows > 1) {
    multiply_some<Format, kInOrder, kRows - 1>(task, tile, n_rows, n_panels);
  }
}

// All rows, in tiles of nearly equal size. (In 32 bits: a division in 64 takes as long as a third
// of a tile.)
template <typename Format>
void multiply_rows(const typename Format::Task& task, GroupTile tile, int n_rows,
                   std::int64_t n_panels) {
  const int n_tiles = (n_rows + Format::kMostRows - 1) / Format::kMostRows;
  const int fewest = n_rows / n_tiles;
  const int n_longer = n_rows - n_tiles * fewest;
  for (int i = 0; i < n_tiles; ++i) {
    const int n = i < n_longer ? fewest + 1 : fewest;
    Format::prefetch(task, tile, n, n_panels, i, n_tiles);
    multiply_some<Format, false, Format::kMostRows>(task, tile, n, n_panels);
    tile.row += n;
    tile.c += n * kInt8TileLanes;
  }
}

// All rows with the panels of some lanes, in blocks of inputs.
template <typename Format>
void multiply_in_blocks(const typename Format::Task& task, GroupTile tile, std::int64_t n_panels) {
  const auto [n_in, group] = Format::inputs(task);
  const std::int64_t n_groups = quotient_up(n_in, group);
  const std::int64_t block_groups = group < kBlockInputs ? kBlockInputs / group : 1;
  for (std::int64_t block = 0; block < n_groups; block += block_groups) {
    for (std::int64_t row = task.row_begin; row < task.row_end; row += kGroupRows) {
      tile.row = row;
      tile.c = task.scratch + (row - task.row_begin) * kInt8TileLanes;
      for (tile.group_begin = block; tile.group_begin < smaller(n_groups, block + block_groups);
           ++tile.group_begin) {
        tile.group_end = tile.group_begin + 1;
        multiply_rows<Format>(task, tile, static_cast<int>(smaller(kGroupRows, task.row_end - row)),
                              n_panels);
      }
    }
  }
}

// The same for as few rows as a tile has.
template <typename Format>
void multiply_in_order(const typename Format::Task& task, GroupTile tile, std::int64_t n_panels) {
  const auto [n_in, group] = Format::inputs(task);
  tile.group_end = quotient_up(n_in, group);
  tile.row = task.row_begin;
  tile.c = task.scratch;
  const auto n_rows = static_cast<int>(task.row_end - task.row_begin);
  const bool in_streams = panels_of(n_rows, /*in_order=*/true) > 1;
  tile.bytes_ahead = in_streams ? kStreamBytesAhead : kBytesAheadInOrder;
  multiply_some<Format, true, Format::kMostRows>(task, tile, n_rows, n_panels);
}

template <typename Format>
void multiply_in_groups(const typename Format::Task& task) {
  const bool in_order = task.row_end - task.row_begin <= Format::kMostRows;
  for (std::int64_t lane = task.lane_begin / kInt8Panel * kInt8Panel; lane < task.lane_end;
       lane += kInt8TileLanes) {
    const std::int64_t n_panels =
        quotient_up(smaller(kInt8TileLanes, task.lane_end - lane), kInt8Panel);
    const GroupTile tile = {.group_begin = 0,
                            .group_end = 0,
                            .row = 0,
                            .panel = lane / kInt8Panel,
                            .c = nullptr,
                            .bytes_ahead = Format::kBytesAheadInBlocks,
                            .asks_for_next = !in_order};
    in_order ? multiply_in_order<Format>(task, tile, n_panels)
             : multiply_in_blocks<Format>(task, tile, n_panels);
    Format::finish(task, lane);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
