// How the tiles of attention are cut along keys so that a chip's multiprocessors end together.
// Pure; needs no CUDA.
//
// Tasks lie in one list, longest first, and a place (a multiprocessor, or its part for one thread
// block) that has nothing to do takes the next one. Times are in units of keys, each against a tile
// of rows. Five tiles of 90 units on 4 places take 180 whole, and 113 if the last is cut in four:
//
//   place 0   90 | 23      1   90 | 23      2   90 | 22      3   90 | 22      (+ kTaskUnits each)
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/gpu_memory.h"
#include "base/ids.h"

namespace longhaul::cuda {

constexpr int kUnitKeys = 64;

// What a task takes besides its units: of 128 rows of head_dim 128, 64 KiB of queries are read, and
// of states, whole or partial, 128 KiB read and written: 8,192 cycles at 24 bytes, 6 units of L2.
constexpr std::int64_t kTaskUnits = 4;
// No range is shorter, for what a task takes besides.
constexpr std::int64_t kMinRangeUnits = kMinKeysOfPrefillRange / kUnitKeys;

// Until `n_places` have done tasks of so many units each.
std::int64_t time_of(std::vector<std::int64_t> task_units, std::int64_t n_places);

// For each tile, the length of its ranges of keys. `n_units`: of each tile, of all heads of a
// sequence; other sequences are left out, so that results have the same bits beside any others.
std::vector<std::int64_t> range_lengths(std::span<const std::int64_t> n_units,
                                        std::int64_t n_places);
// The ranges of a tile. A last one that would be shorter than kMinRangeUnits goes to the others.
std::vector<Extent> ranges_of(std::int64_t n_units, std::int64_t length);

}  // namespace longhaul::cuda
