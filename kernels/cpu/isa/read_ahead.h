// Asking memory for the blocks of a cache before they are read. Few rows wait for memory, and the
// hardware foresees neither the jump from block to block nor the pause that a softmax makes. See
// kernels/cpu/isa/attention.cc.
//
// What is asked for follows the bytes of the blocks as they lie, a distance ahead of what is read,
// and as evenly as can be: a processor forgets what it is asked for while too many lines are under
// way (measured on Zen 5: one in 6 cycles is remembered, one in 2 is not).
#pragma once
#include <cstdint>

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/streams.h"
#include "kernels/kv_block.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kLineBytes = 64;
#if defined(__AMX_TILE__)
// Into the second cache: on Intel's cores the first one's few pending lines are what loads need
// (measured on Granite Rapids: bf16 and f32 are read at 0.83 of the machine so, else at 0.7).
constexpr int kLocality = 2;
#else
// With 16 lanes, what is near: into the first cache. Else a panel, too much for that: the second.
constexpr int kLocality = kWidth == 16 ? 3 : 2;
#endif

// A block's lines are asked for in so many streams side by side (streams.h).
constexpr std::int64_t kBlockStreams = kStreams == 1 ? 1 : 2;

struct ReadAhead {
  const KvBlockRef* blocks = nullptr;
  std::int64_t n_blocks = 0;
  std::int64_t block_lines = 0;
  std::int64_t block = 0;   // of `blocks`, the one that is asked for
  std::int64_t n_left = 0;  // its lines that are still to be asked for
  const std::byte* data = nullptr;

  // The next line to ask for is this one, counted from a block's first.
  void move_to(std::int64_t from_block, std::int64_t line) {
    block = from_block + line / block_lines;
    n_left = block < n_blocks ? block_lines - line % block_lines : 0;
    data = block < n_blocks ? blocks[block].data : nullptr;
  }

  template <int kLines>
  LONGHAUL_INLINE void ask() {
    if (n_left <= 0) {
      if (block + 1 >= n_blocks) return;
      data = blocks[++block].data;
      n_left = block_lines;
    }
    const std::int64_t first = block_lines - n_left;
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i)
      __builtin_prefetch(data + place_of(first + i) * kLineBytes, /*rw=*/0, kLocality);
    n_left -= kLines;
  }

 private:
  // The line of a block that is asked for i-th.
  LONGHAUL_INLINE std::int64_t place_of(std::int64_t i) const {
    return i % kBlockStreams * (block_lines / kBlockStreams) + i / kBlockStreams;
  }
};

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
