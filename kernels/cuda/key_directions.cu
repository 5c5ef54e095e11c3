// sum_key_directions and key_distinctions: a thread block takes a tile of keys. Doubles are added,
// divided and rounded as CPUs do it, and sums of directions are whole numbers, so results are the
// CPUs' bit for bit, whichever tile adds first.
#include <cmath>
#include <cstring>
#include <vector>

#include "base/device/gpu_memory.h"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/key_tiles.h"
#include "kernels/cuda/key_values.cuh"
#include "kernels/cuda/parcel.h"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

using AddedSum = unsigned long long;  // what can be added at once; of whole numbers, as they wrap
static_assert(sizeof(AddedSum) == kDirectionSumBytes && sizeof(AddedSum) == sizeof(std::int64_t));

constexpr int kKeyThreads = kKeysOfScoreTile;

struct Keys {
  const KeyTile* tiles;
  KeyPart k;
  bool operator==(const Keys&) const = default;
};

// grid.x is the tile. First a thread for each key, then one for each dimension.
__global__ void sum_directions_kernel(Keys keys, AddedSum* sums) {  // [head_dim]
  auto* scales = reinterpret_cast<double*>(shared_memory());        // [kKeyThreads]
  const KeyTile tile = keys.tiles[blockIdx.x];
  const int key = static_cast<int>(threadIdx.x);
  double square = 0.0;
  for (std::int64_t d = 0; key < tile.n_keys && d < keys.k.head_dim; ++d) {
    const auto value = static_cast<double>(key_value(keys.k, tile.block, d, tile.first_slot + key));
    square += value * value;
  }
  scales[key] = square == 0.0 ? 0.0 : kDirectionUnits / sqrt(square);
  __syncthreads();  // scales are there before other threads use them
  for (std::int64_t d = key; d < keys.k.head_dim; d += kKeyThreads) {
    long long sum = 0;
    for (int i = 0; i < tile.n_keys; ++i) {
      const auto value = static_cast<double>(key_value(keys.k, tile.block, d, tile.first_slot + i));
      sum += llrint(value * scales[i]);
    }
    atomicAdd(sums + d, static_cast<AddedSum>(sum));
  }
}

// grid.x is the tile, a thread has a key.
__global__ void distinctions_kernel(Keys keys, const float* direction, double inverse_length,
                                    float* distinctions) {  // [n_keys]
  const KeyTile tile = keys.tiles[blockIdx.x];
  const int key = static_cast<int>(threadIdx.x);
  if (key >= tile.n_keys) return;
  double square = 0.0;
  double product = 0.0;
  for (std::int64_t d = 0; d < keys.k.head_dim; ++d) {
    const auto value = static_cast<double>(key_value(keys.k, tile.block, d, tile.first_slot + key));
    square += value * value;
    product += value * static_cast<double>(direction[d]);
  }
  distinctions[tile.first_key + key] =
      square == 0.0 ? 0.0F : static_cast<float>(-(product / sqrt(square)) * inverse_length);
}

Keys keys_at(const std::byte* base, std::size_t tiles_at, const KvBlockShape& shape) {
  return {.tiles = part<KeyTile>(base, tiles_at), .k = key_part(shape)};
}

}  // namespace

void sum_key_directions(Stream& stream, const KeyDirectionSumsArgs& args) {
  const std::vector<KeyTile> tiles = tiles_of(args.keys.blocks);
  if (tiles.empty()) return;
  Parcel parcel;
  const std::size_t tiles_at = parcel.add(tiles);
  const std::size_t sums_at =
      parcel.add(std::vector<std::int64_t>(args.sums.begin(), args.sums.end()));
  const std::byte* base = stream.upload(parcel.bytes());
  std::byte* sums = stream.scratch(args.sums.size_bytes());
  copy_on_device(stream, sums, base + sums_at, args.sums.size_bytes());
  launch(stream, "sum_key_directions", sum_directions_kernel,
         {.x = static_cast<std::int64_t>(tiles.size()),
          .block = kKeyThreads,
          .shared_bytes = kKeyThreads * sizeof(double)},
         keys_at(base, tiles_at, args.keys.shape), reinterpret_cast<AddedSum*>(sums));
  std::memcpy(args.sums.data(), stream.download(sums, args.sums.size_bytes()),
              args.sums.size_bytes());
}

void key_distinctions(Stream& stream, const KeyDistinctionsArgs& args) {
  const std::vector<KeyTile> tiles = tiles_of(args.keys.blocks);
  Parcel parcel;
  const std::size_t tiles_at = parcel.add(tiles);
  const std::size_t direction_at =
      parcel.add(std::vector<float>(args.direction.begin(), args.direction.end()));
  const std::byte* base = stream.upload(parcel.bytes());
  std::byte* distinctions = stream.scratch(args.distinctions.size_bytes());
  launch(stream, "key_distinctions", distinctions_kernel,
         {.x = static_cast<std::int64_t>(tiles.size()), .block = kKeyThreads},
         keys_at(base, tiles_at, args.keys.shape), part<float>(base, direction_at),
         args.inverse_length, reinterpret_cast<float*>(distinctions));
  std::memcpy(args.distinctions.data(),
              stream.download(distinctions, args.distinctions.size_bytes()),
              args.distinctions.size_bytes());
}

}  // namespace longhaul::cuda
