// How products with quantised activations are cut, for int8_linear.cc and int4_linear.cc: 64 lanes
// of weights at a time, in blocks of inputs. A block's weights (128 KiB of int8) stay in the second
// cache while all rows pass, and a group of it (8 KiB for a group of 128) in the first while some
// rows do. So few rows as a tile has pass all groups at once.
//
// A Format says: Task (kernels/cpu/isa/int8_linear.h, int4_linear.h); kMostRows of a tile;
// panels_of(rows), side by side in a tile; inputs(task); multiply_tile<kRows, kPanels>(task, tile);
// prefetch(task, tile, ...) before the tile's rows are multiplied; finish(task, lane) once the sums
// of the lanes from `lane` on are whole.
#pragma once
#include <cstdint>

#include "base/int8_format.h"
#include "kernels/cpu/isa/int8_linear.h"
#include "kernels/cpu/isa/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr int kPanelVectors = static_cast<int>(kInt8Panel) / kWidth;
constexpr std::int64_t kGroupRows = 48;      // whose integers of a group (6 KiB) pass together
constexpr std::int64_t kBlockInputs = 2048;  // a multiple of the usual groups

LONGHAUL_INLINE std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

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
  float* c;  // [rows, kInt8TileLanes]; begun by group 0
};

// So many panels keep their sums of so many rows in registers.
constexpr int panels_beside(int rows) {
  return kWidth == 16 ? 4 : kWidth == 8 && rows <= 2 ? 4 / rows : 1;
}

template <typename Format, int kRows>
void multiply_panels(const typename Format::Task& task, GroupTile tile, std::int64_t n_panels) {
  constexpr int kPanels = Format::panels_of(kRows);
  for (; n_panels >= kPanels; n_panels -= kPanels) {
    Format::template multiply_tile<kRows, kPanels>(task, tile);
    tile.panel += kPanels;
    tile.c += kPanels * kInt8Panel;
  }
  for (; n_panels > 0; --n_panels, ++tile.panel, tile.c += kInt8Panel)
    Format::template multiply_tile<kRows, 1>(task, tile);
}

template <typename Format, int kRows>
LONGHAUL_INLINE void multiply_some(const typename Format::Task& task, const GroupTile& tile,
                                   int n_rows, std::int64_t n_panels) {
  if (n_rows == kRows) {
    multiply_panels<Format, kRows>(task, tile, n_panels);
  } else if constexpr (kRows > 1) {
    multiply_some<Format, kRows - 1>(task, tile, n_rows, n_panels);
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
    multiply_some<Format, Format::kMostRows>(task, tile, n, n_panels);
    tile.row += n;
    tile.c += n * kInt8TileLanes;
  }
}

template <typename Format>
void multiply_in_groups(const typename Format::Task& task) {
  const auto [n_in, group] = Format::inputs(task);
  const std::int64_t n_groups = (n_in + group - 1) / group;
  const std::int64_t n_rows = task.row_end - task.row_begin;
  const bool is_few = n_rows <= Format::kMostRows;
  const std::int64_t of_block = group < kBlockInputs ? kBlockInputs / group : 1;
  const std::int64_t block_groups = is_few ? n_groups : of_block;
  const std::int64_t groups_at_once = is_few ? n_groups : 1;
  for (std::int64_t lane = task.lane_begin / kInt8Panel * kInt8Panel; lane < task.lane_end;
       lane += kInt8TileLanes) {
    const std::int64_t n_panels =
        (lesser(kInt8TileLanes, task.lane_end - lane) + kInt8Panel - 1) / kInt8Panel;
    for (std::int64_t block = 0; block < n_groups; block += block_groups) {
      const std::int64_t end = lesser(n_groups, block + block_groups);
      for (std::int64_t row = 0; row < n_rows; row += kGroupRows) {
        for (std::int64_t g = block; g < end; g += groups_at_once) {
          multiply_rows<Format>(task,
                                {.group_begin = g,
                                 .group_end = lesser(end, g + groups_at_once),
                                 .row = task.row_begin + row,
                                 .panel = lane / kInt8Panel,
                                 .c = task.scratch + row * kInt8TileLanes},
                                static_cast<int>(lesser(kGroupRows, n_rows - row)), n_panels);
        }
      }
    }
    Format::finish(task, lane);
  }
}

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
