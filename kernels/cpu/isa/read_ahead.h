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
  std::int64_t block = 0;   // of `blocks`, the one in which the next line lies
  std::int64_t n_left = 0;  // of its lines
  const std::byte* at = nullptr;

  // So many lines from a block's first on have been asked for.
  void move_to(std::int64_t from_block, std::int64_t n_lines) {
    block = from_block + n_lines / block_lines;
    const std::int64_t within = n_lines % block_lines;
    n_left = block < n_blocks ? block_lines - within : 0;
    at = block < n_blocks ? blocks[block].data + within / kBlockStreams * kLineBytes : nullptr;
  }

  template <int kLines>
  LONGHAUL_INLINE void ask() {
    if (n_left <= 0) {
      if (block + 1 >= n_blocks) return;
      at = blocks[++block].data;
      n_left = block_lines;
    }
    const std::int64_t second = block_lines / 2 * kLineBytes;  // stream, from the first
    if constexpr (kBlockStreams == 1) {
      ask_for<kLines>(at);
      at += kLines * kLineBytes;
    } else if constexpr (kLines % 2 == 0) {
      ask_for<kLines / 2>(at);
      ask_for<kLines / 2>(at + second);
      at += kLines / 2 * kLineBytes;
    } else {  // in turn
      static_assert(kLines == 1);
      const std::int64_t turn = n_left % 2;
      ask_for<1>(at + turn * second);
      at += (1 - turn) * kLineBytes;
    }
    n_left -= kLines;
  }

 private:
  template <int kLines>
  static LONGHAUL_INLINE void ask_for(const std::byte* lines) {
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i)
      __builtin_prefetch(lines + i * kLineBytes, /*rw=*/0, kLocality);
  }
};

}  // namespace
}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
