// kernels/cuda/instructions.cuh on the CPU; shadows it. The same names with the same meaning.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "base/device/check_cuda.h"
#include "base/device/step_graph.h"
#include "base/dtype.h"
#include "tests/cuda_on_host/streams.h"
#include "tests/cuda_on_host/thread_block.h"

namespace longhaul::cuda {

struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  int block = 256;
  std::size_t shared_bytes = 0;
  bool operator==(const Grid&) const = default;
};

template <typename... Params>
struct KernelCall {
  void (*kernel)(Params...);
  Grid grid;
  std::tuple<Params...> args;
  bool operator==(const KernelCall&) const = default;
  void queue(void* native) const {
    cuda_on_host::queue(static_cast<cudaStream_t>(native), reinterpret_cast<const void*>(kernel),
                        [call = *this] { call.run(); });
  }
  void run() const {
    const cuda_on_host::DeviceMemoryAccess access;
    const cuda_on_host::Index blocks = {static_cast<unsigned>(grid.x),
                                        static_cast<unsigned>(grid.y)};
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        cuda_on_host::run_block(blocks, {x, y}, static_cast<unsigned>(grid.block),
                                grid.shared_bytes, [&] { std::apply(kernel, args); });
      }
    }
  }
};

template <typename... Params, typename... Args>
void launch(Stream& stream, const char*, void (*kernel)(Params...), const Grid& grid,
            const Args&... args) {
  if (grid.x == 0 || grid.y == 0) return;
  queue_work(stream, KernelCall<Params...>{kernel, grid, {args...}});
}

inline std::byte* shared_memory() { return cuda_on_host::shared_memory(); }

template <typename T>
T shuffle_xor(T value, int mask) {
  struct In {
    T value;
    int mask;
  } in = {value, mask};
  T out;
  cuda_on_host::warp_instruction(&in, &out, [](const void* const* ins, void* const* outs) {
    for (int lane = 0; lane < 32; ++lane) {
      const int other = lane ^ static_cast<const In*>(ins[lane])->mask;
      *static_cast<T*>(outs[lane]) = static_cast<const In*>(ins[other])->value;
    }
  });
  return out;
}

template <typename T>
T shuffle_from(T value, int lane) {
  struct In {
    T value;
    int lane;
  } in = {value, lane};
  T out;
  cuda_on_host::warp_instruction(&in, &out, [](const void* const* ins, void* const* outs) {
    for (int own = 0; own < 32; ++own) {
      const int other = static_cast<const In*>(ins[own])->lane & 31;
      *static_cast<T*>(outs[own]) = static_cast<const In*>(ins[other])->value;
    }
  });
  return out;
}
inline int count_lanes(bool value) {
  int out = 0;
  cuda_on_host::warp_instruction(&value, &out, [](const void* const* ins, void* const* outs) {
    int n = 0;
    for (int lane = 0; lane < 32; ++lane) n += *static_cast<const bool*>(ins[lane]) ? 1 : 0;
    for (int lane = 0; lane < 32; ++lane) *static_cast<int*>(outs[lane]) = n;
  });
  return out;
}
inline bool any_in_warp(bool value) { return count_lanes(value) > 0; }
inline std::uint32_t transposed_8x8(std::uint32_t pair) {
  std::uint32_t out = 0;
  cuda_on_host::warp_instruction(&pair, &out, [](const void* const* ins, void* const* outs) {
    const auto at = [&](int row, int column) {
      const auto both = *static_cast<const std::uint32_t*>(ins[4 * row + column / 2]);
      return both >> column % 2 * 16 & 0xffffU;
    };
    for (int lane = 0; lane < 32; ++lane) {
      *static_cast<std::uint32_t*>(outs[lane]) =
          at(lane % 4 * 2, lane / 4) | at(lane % 4 * 2 + 1, lane / 4) << 16U;
    }
  });
  return out;
}

inline void sync_warp() {
  cuda_on_host::warp_instruction(nullptr, nullptr, [](const void* const*, void* const*) {});
}

inline float float_of_f16(std::uint16_t bits) { return to_float(Float16{bits}); }
inline std::uint16_t f16_rounded(float value) { return to_f16(value).bits; }
inline std::uint16_t f16_rounded_down(float value) {
  const Float16 nearest = to_f16(value);
  if (!(to_float(nearest) > value)) return nearest.bits;
  if ((nearest.bits & 0x7fffU) == 0) return 0x8001;
  return static_cast<std::uint16_t>((nearest.bits & 0x8000U) != 0 ? nearest.bits + 1
                                                                  : nearest.bits - 1);
}
inline std::uint32_t bf16_pair(float low, float high) {
  return to_bf16(low).bits | (static_cast<std::uint32_t>(to_bf16(high).bits) << 16U);
}
inline std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
  const std::uint64_t bytes = low | static_cast<std::uint64_t>(high) << 32U;
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = which >> 4 * i & 7U;
    out |= static_cast<std::uint32_t>(bytes >> 8 * from & 0xffU) << 8 * i;
  }
  return out;
}
inline std::uint32_t masked_and_set(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  return (word & mask) | bits;
}
inline float float_of_half(std::uint32_t pair, unsigned at) {
  return to_float(BFloat16{static_cast<std::uint16_t>(pair >> at)});
}
inline std::uint32_t add_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  return bf16_pair(float_of_half(a, 0) + float_of_half(b, 0),
                   float_of_half(a, 16) + float_of_half(b, 16));
}
inline std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  return bf16_pair(float_of_half(a, 0) * float_of_half(b, 0),
                   float_of_half(a, 16) * float_of_half(b, 16));
}
inline float exp2_approx(float x) { return std::exp2(x); }

inline void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct In {
    float c[4];
    std::uint32_t a[4];
    std::uint32_t b[2];
  } in;
  std::memcpy(in.c, c, sizeof in.c);
  std::memcpy(in.a, a, sizeof in.a);
  std::memcpy(in.b, b, sizeof in.b);
  cuda_on_host::warp_instruction(&in, &c, [](const void* const* ins, void* const* outs) {
    const auto half = [](std::uint32_t pair, int upper) {
      return to_float(BFloat16{static_cast<std::uint16_t>(upper != 0 ? pair >> 16U : pair)});
    };
    float left[16][16];
    float right[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const In& from = *static_cast<const In*>(ins[lane]);
      const int g = lane / 4;
      const int t = lane % 4;
      for (int i = 0; i < 8; ++i) {
        left[g + i / 2 % 2 * 8][2 * t + i / 4 * 8 + i % 2] = half(from.a[i / 2], i % 2);
      }
      for (int i = 0; i < 4; ++i) right[2 * t + i / 2 * 8 + i % 2][g] = half(from.b[i / 2], i % 2);
    }
    for (int lane = 0; lane < 32; ++lane) {
      auto* out = static_cast<float*>(outs[lane]);
      for (int i = 0; i < 4; ++i) {
        float sum = static_cast<const In*>(ins[lane])->c[i];
        for (int k = 0; k < 16; ++k) {
          sum += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
        }
        out[i] = sum;
      }
    }
  });
}

// Left: the type of a's bytes.
template <typename Left>
void multiply_bytes(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                    const std::uint32_t (&b)[2]) {
  struct In {
    std::int32_t c[4];
    std::uint32_t a[4];
    std::uint32_t b[2];
  } in;
  std::memcpy(in.c, c, sizeof in.c);
  std::memcpy(in.a, a, sizeof in.a);
  std::memcpy(in.b, b, sizeof in.b);
  cuda_on_host::warp_instruction(&in, &c, [](const void* const* ins, void* const* outs) {
    const auto byte = [](std::uint32_t word, int i) { return word >> (8U * unsigned(i)) & 0xffU; };
    std::int32_t left[16][32];
    std::int32_t right[32][8];
    for (int lane = 0; lane < 32; ++lane) {
      const In& from = *static_cast<const In*>(ins[lane]);
      const int g = lane / 4;
      const int t = lane % 4;
      for (int i = 0; i < 16; ++i) {
        left[g + i / 4 % 2 * 8][4 * t + i / 8 * 16 + i % 4] =
            static_cast<Left>(byte(from.a[i / 4], i % 4));
      }
      for (int i = 0; i < 8; ++i) {
        right[4 * t + i / 4 * 16 + i % 4][g] = static_cast<std::int8_t>(byte(from.b[i / 4], i % 4));
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      auto* out = static_cast<std::int32_t*>(outs[lane]);
      for (int i = 0; i < 4; ++i) {
        std::int32_t sum = static_cast<const In*>(ins[lane])->c[i];
        for (int k = 0; k < 32; ++k) {
          sum += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
        }
        out[i] = sum;
      }
    }
  });
}
inline void mma_u8_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                      const std::uint32_t (&b)[2]) {
  multiply_bytes<std::uint8_t>(c, a, b);
}
inline void mma_s8_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                      const std::uint32_t (&b)[2], std::int32_t start) {
  std::fill_n(c, 4, start);
  multiply_bytes<std::int8_t>(c, a, b);
}

inline std::int32_t dot_u8_s8(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  for (unsigned i = 0; i < 32; i += 8) {
    sum += static_cast<std::uint8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  }
  return sum;
}

// Compiled for a CPU without fused multiply-adds (CMakeLists.txt).
inline float rounded_product(float a, float b) { return a * b; }
inline float rounded_sum(float a, float b) { return a + b; }

struct alignas(16) Words4 {
  std::uint32_t at[4];
};
inline Words4 load_once_16(const void* global) {
  if (reinterpret_cast<std::uintptr_t>(global) % 16 != 0) __builtin_trap();
  return *static_cast<const Words4*>(global);
}

inline Words4 load_shared_16(const void* global) { return load_once_16(global); }
struct alignas(8) Words2 {
  std::uint32_t at[2];
};
inline Words2 load_once_8(const void* global) {
  if (reinterpret_cast<std::uintptr_t>(global) % 8 != 0) __builtin_trap();
  return *static_cast<const Words2*>(global);
}

// As late as CUDA allows: when the thread waits for them.
inline void copy_async_16(void* shared, const void* global, bool exists) {
  cuda_on_host::defer_copy(shared, exists ? global : nullptr, 16);
}
inline void commit_copies() { cuda_on_host::commit_copies(); }
template <int kPending>
void wait_for_copies() {
  cuda_on_host::finish_copies(kPending);
}

}  // namespace longhaul::cuda
