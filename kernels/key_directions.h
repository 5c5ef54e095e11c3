// How little each cached key points where a head's keys point on the whole: what KeyDiff (Park et
// al. 2025, arXiv 2504.15364, section 3) keeps tokens by. No query is asked, so it depends on the
// keys alone.
//
// Keys may lie with several ranks. Directions are summed up in whole numbers, so the sum of all is
// the same whichever keys lie together, and each rank then compares its own:
//
//   rank 0: sum_key_directions ---\            /---> key_distinctions of rank 0's keys
//   rank 1: sum_key_directions ------ added -------> key_distinctions of rank 1's keys
//
// The same bits on every device and for any number of threads: along head_dim, products of floats,
// which double holds exactly, are added in order, each key by itself. Sums and results are host
// memory, the memory of blocks is the device's. Calls wait for the stream's work.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/device/device.h"
#include "kernels/kv_block.h"

namespace longhaul {

// One KV head's keys, after RoPE, as they are cached.
struct KeyDirectionsArgs {
  KvBlockShape shape = {};
  std::span<const KvBlockRef> blocks = {};
};

// Of a direction, a vector of length 1, the units in 1: 2^27 keys' fit in 64 bits.
inline constexpr double kDirectionUnits = static_cast<double>(std::int64_t{1} << 36);

// The sum of all keys' directions in these units: [head_dim]. A key of zeros has none. Throws
// kInvalidArgument for shapes that do not fit, kUnsupported for what a GPU cannot read.
std::vector<std::int64_t> sum_key_directions(StreamRef stream, const KeyDirectionsArgs& keys);

// Minus the cosine of each key and the direction that `all` [head_dim] has, the sum of these and
// all other keys: [n_keys], in the order of blocks and slots. 0 where either has no direction.
std::vector<float> key_distinctions(StreamRef stream, const KeyDirectionsArgs& keys,
                                    std::span<const std::int64_t> all);

// --- For the devices' forms ---

struct KeyDirectionSumsArgs {
  const KeyDirectionsArgs& keys;
  std::span<std::int64_t> sums;  // [head_dim], zeros
};
struct KeyDistinctionsArgs {
  const KeyDirectionsArgs& keys;
  std::span<const float> direction;  // [head_dim], of any length
  double inverse_length = 0;         // of it; 0 where it has none
  std::span<float> distinctions;     // [n_keys]
};

}  // namespace longhaul
