// How products with weights of integers in panels are cut for the threads. For operators only.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/linear.h"

namespace longhaul {

struct PanelTask {
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t lane_begin;  // lanes of the matrix, of which its view has some
  std::int64_t lane_end;
};

// Calls body(task) for blocks of rows, and of each as many cuts of the lanes as there is work for,
// as parallel_for does.
template <typename Body>
void for_panel_tasks(const LinearArgs& args, const Body& body) {
  constexpr std::int64_t kLeastWeights = 131072;  // of a task
  const WeightView& w = args.weight;
  const std::int64_t n_rows = args.x.dim(0);
  const std::int64_t end = w.first_lane + w.n_out;
  const std::int64_t n_tiles = ceil_div(end, cpu::kInt8TileLanes);
  const std::int64_t n_cuts = std::min(
      n_tiles, n_row_tasks(end * std::min(n_rows, cpu::kInt8TaskRows), w.n_in, kLeastWeights));
  const std::int64_t n_blocks = ceil_div(n_rows, cpu::kInt8TaskRows);
  parallel_for(n_blocks * n_cuts, [&](std::int64_t task) {
    const std::int64_t row = task / n_cuts * cpu::kInt8TaskRows;
    const std::int64_t cut = task % n_cuts;
    const auto lane_of = [&](std::int64_t c) { return c * n_tiles / n_cuts * cpu::kInt8TileLanes; };
    body(PanelTask{.row_begin = row,
                   .row_end = std::min(row + cpu::kInt8TaskRows, n_rows),
                   .lane_begin = std::max(lane_of(cut), w.first_lane),
                   .lane_end = std::min(lane_of(cut + 1), end)});
  });
}

}  // namespace longhaul
