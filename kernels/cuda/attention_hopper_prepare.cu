// Converts blocks to what wgmma's descriptors can name: bf16, 8 neighbours along a sum in 16 bytes,
// where blocks have pairs of bf16 or codes.
#include "base/error.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/kv_words.cuh"

namespace longhaul::cuda {
namespace {

constexpr int kPrepareThreads = 256;

// Eight neighbours along a sum: the words that hold them, or the word whose lower or upper half
// does.
template <KvType kType>
struct Eight {
  static constexpr int kLanes = lanes_of(kType);
  static constexpr int kWords = kLanes > 8 ? 1 : 8 / kLanes;
  std::uint32_t words[kWords];
  int first;  // of the first word's values

  // The row of words with the first of the values from this one on, a multiple of 8.
  static __device__ __forceinline__ std::int64_t row(std::int64_t value) { return value / kLanes; }
  __device__ __forceinline__ float code(int i) const {
    const std::uint32_t bits = lane_bits(kLanes, words[(first + i) / kLanes], (first + i) % kLanes);
    return kType == KvType::kFp8 ? float_of_e4m3(bits) : static_cast<float>(bits);
  }
};

__device__ __forceinline__ float range_of(const std::byte* block, std::int64_t at,
                                          std::int64_t slot) {
  return float_of_f16(reinterpret_cast<const std::uint16_t*>(block + at)[slot]);
}

template <KvType kType>
__device__ __forceinline__ float minimum_of(const std::byte* block, const PartRef& part,
                                            std::int64_t range) {
  return has_minimum(kType) ? range_of(block, part.minima_at, range) : 0.0F;
}

// What one of the two kernels below converts.
struct Conversion {
  const KeyUnit* units;
  std::int64_t block_size;
  int head_dim;
  PartRef part;
  std::byte* to;  // of unit 0
  std::int64_t unit_bytes;
  bool operator==(const Conversion&) const = default;
};

// grid.x is the unit. A thread writes 16 bytes: 8 dims of a key.
template <KvType kType>
__global__ void prepare_k_kernel(Conversion c) {
  const KeyUnit unit = c.units[blockIdx.x];
  auto* to = reinterpret_cast<Words4*>(c.to + std::int64_t{blockIdx.x} * c.unit_bytes);
  const auto* words = reinterpret_cast<const std::uint32_t*>(unit.block + c.part.at);
  for (int i = static_cast<int>(threadIdx.x); i < kUnitKeys * c.head_dim / 8;
       i += kPrepareThreads) {
    const std::int64_t slot = unit.first_slot + i % kUnitKeys;
    Words4 out = {};
    if (slot < c.block_size) {  // zeros where the block has ended
      const std::int64_t dim = i / kUnitKeys * 8;
      Eight<kType> eight;
      eight.first = static_cast<int>(dim % eight.kLanes);
      for (int w = 0; w < eight.kWords; ++w)
        eight.words[w] = words[(eight.row(dim) + w) * c.block_size + slot];
      if constexpr (kType == KvType::kBf16) {
        for (int w = 0; w < 4; ++w) out.at[w] = eight.words[w];
      } else if constexpr (holds_groups(kType)) {
        const std::int64_t range = slot / kKvGroup * c.head_dim + dim;
        float values[8];
        for (int j = 0; j < 8; ++j) {
          values[j] = eight.code(j) * range_of(unit.block, c.part.scales_at, range + j) +
                      minimum_of<kType>(unit.block, c.part, range + j);
        }
        for (int w = 0; w < 4; ++w) out.at[w] = bf16_pair(values[2 * w], values[2 * w + 1]);
      } else {
        const float scale = range_of(unit.block, c.part.scales_at, slot);
        const float minimum = minimum_of<kType>(unit.block, c.part, slot);
        for (int w = 0; w < 4; ++w) {
          out.at[w] = bf16_pair(eight.code(2 * w) * scale + minimum,
                                eight.code(2 * w + 1) * scale + minimum);
        }
      }
    }
    to[i] = out;
  }
}

// grid.x is the unit. A thread writes 16 bytes: 8 keys of a dim.
template <KvType kType>
__global__ void prepare_v_kernel(Conversion c) {
  const KeyUnit unit = c.units[blockIdx.x];
  auto* to = reinterpret_cast<Words4*>(c.to + std::int64_t{blockIdx.x} * c.unit_bytes);
  const auto* words = reinterpret_cast<const std::uint32_t*>(unit.block + c.part.at);
  for (int i = static_cast<int>(threadIdx.x); i < kUnitKeys * c.head_dim / 8;
       i += kPrepareThreads) {
    const std::int64_t slot = unit.first_slot + i / c.head_dim * 8;
    Words4 out = {};
    if (slot < c.block_size) {  // and then all 8 are in the block
      const int dim = i % c.head_dim;
      Eight<kType> eight;
      eight.first = static_cast<int>(slot % eight.kLanes);
      for (int w = 0; w < eight.kWords; ++w)
        eight.words[w] = words[(eight.row(slot) + w) * c.head_dim + dim];
      if constexpr (kType == KvType::kBf16) {
        for (int w = 0; w < 4; ++w) out.at[w] = eight.words[w];
      } else {
        // Of groups, those of the group of dims; else of all dims.
        const std::int64_t range =
            slot + (holds_groups(kType) ? dim / kKvGroup * c.block_size : std::int64_t{0});
        float values[8];
        for (int j = 0; j < 8; ++j) {
          values[j] = eight.code(j) * range_of(unit.block, c.part.scales_at, range + j) +
                      minimum_of<kType>(unit.block, c.part, range + j);
        }
        for (int w = 0; w < 4; ++w) out.at[w] = bf16_pair(values[2 * w], values[2 * w + 1]);
      }
    }
    to[i] = out;
  }
}

enum class Part { kK, kV };

template <KvType kType>
void prepare_part(Stream& stream, Part part, std::int64_t n_units, const Conversion& conversion) {
  const Grid grid = {.x = n_units, .block = kPrepareThreads};
  switch (part) {
    case Part::kK:
      return launch(stream, "attention: prepare K", prepare_k_kernel<kType>, grid, conversion);
    case Part::kV:
      return launch(stream, "attention: prepare V", prepare_v_kernel<kType>, grid, conversion);
  }
}

void prepare(Stream& stream, Part part, std::int64_t n_units, const Conversion& conversion) {
  switch (conversion.part.type) {
    case KvType::kBf16:
      return prepare_part<KvType::kBf16>(stream, part, n_units, conversion);
    case KvType::kInt8:
      return prepare_part<KvType::kInt8>(stream, part, n_units, conversion);
    case KvType::kInt4:
      return prepare_part<KvType::kInt4>(stream, part, n_units, conversion);
    case KvType::kFp8:
      return prepare_part<KvType::kFp8>(stream, part, n_units, conversion);
    case KvType::kKivi4:
      return prepare_part<KvType::kKivi4>(stream, part, n_units, conversion);
    case KvType::kKivi2:
      return prepare_part<KvType::kKivi2>(stream, part, n_units, conversion);
    case KvType::kF32:
      break;
  }
  throw Error(ErrorCode::kInternal, "attention: this type is not for Hopper's tensor cores");
}

}  // namespace

void prepare_keys(Stream& stream, const KvBlockShape& shape, const KeyUnit* units,
                  std::int64_t n_units, std::byte* prepared) {
  const std::int64_t part_bytes = kUnitKeys * shape.head_dim * 2;
  Conversion conversion = {.units = units,
                           .block_size = shape.block_size,
                           .head_dim = static_cast<int>(shape.head_dim),
                           .part = k_part(shape),
                           .to = prepared,
                           .unit_bytes = 2 * part_bytes};
  prepare(stream, Part::kK, n_units, conversion);
  conversion.part = v_part(shape);
  conversion.to = prepared + part_bytes;
  prepare(stream, Part::kV, n_units, conversion);
}

}  // namespace longhaul::cuda
