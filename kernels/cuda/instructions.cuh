// How kernels are launched, and the instructions that C++ has no name for. This file is all of the
// CUDA language that kernels use beside threadIdx, blockIdx and __syncthreads; tests/cuda_on_host
// has another one of this name that runs the same kernels on the CPU.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "base/device/check_cuda.h"
#include "base/device/step_graph.h"

namespace longhaul::cuda {

struct Grid {
  std::int64_t x = 1;  // thread blocks
  std::int64_t y = 1;
  int block = 256;  // threads of each
  std::size_t shared_bytes = 0;
  bool operator==(const Grid&) const = default;
};

// Work (base/device/step_graph.h). Parameters are compared by value, so they have operator==.
template <typename... Params>
struct KernelCall {
  const char* name;
  void (*kernel)(Params...);
  Grid grid;
  std::tuple<Params...> args;
  bool operator==(const KernelCall&) const = default;
  void queue(void* native) const {
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
    std::apply(
        [&](const Params&... params) {
          kernel<<<blocks, static_cast<unsigned>(grid.block), grid.shared_bytes,
                   static_cast<cudaStream_t>(native)>>>(params...);
        },
        args);
    check_cuda(cudaGetLastError(), name);
  }
};

// Queues the kernel. Nothing for an empty grid. Throws kCuda if the launch is refused.
template <typename... Params, typename... Args>
void launch(Stream& stream, const char* name, void (*kernel)(Params...), const Grid& grid,
            const Args&... args) {
  if (grid.x == 0 || grid.y == 0) return;
  constexpr std::size_t kUsualSharedBytes = 48U << 10U;
  if (grid.shared_bytes > kUsualSharedBytes) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(grid.shared_bytes)),
               name);
  }
  queue_work(stream, KernelCall<Params...>{name, kernel, grid, {args...}});
}

// The thread block's dynamic shared memory, aligned to 16 bytes.
__device__ __forceinline__ std::byte* shared_memory() {
  extern __shared__ __align__(16) unsigned char longhaul_dynamic_shared[];
  return reinterpret_cast<std::byte*>(longhaul_dynamic_shared);
}

constexpr unsigned kAllLanes = 0xffffffffU;

// The value of the lane whose number differs in the bits of `mask`. All 32 lanes call.
template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}

// The value of lane `lane` (modulo 32). All 32 lanes call.
template <typename T>
__device__ __forceinline__ T shuffle_from(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <typename T>
__device__ __forceinline__ T* shuffle_from(T* value, int lane) {
  return reinterpret_cast<T*>(
      __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(value), lane));
}
// Whether it is true in any lane; in how many. All 32 lanes call.
__device__ __forceinline__ bool any_in_warp(bool value) {
  return __any_sync(kAllLanes, value) != 0;
}
__device__ __forceinline__ int count_lanes(bool value) {
  return __popc(__ballot_sync(kAllLanes, value));
}
// Of an 8 x 8 matrix of 16 bits each, whose row g has its columns 2t, 2t + 1 in lane 4g + t: what
// that lane has of the transposed one. All 32 lanes call.
__device__ __forceinline__ std::uint32_t transposed_8x8(std::uint32_t pair) {
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

__device__ __forceinline__ void sync_warp() { __syncwarp(); }

__device__ __forceinline__ float float_of_f16(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
// To the nearest, halves to even.
__device__ __forceinline__ std::uint16_t f16_rounded(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
// Toward minus infinity; |value| < 65504.
__device__ __forceinline__ std::uint16_t f16_rounded_down(float value) {
  return __half_as_ushort(__float2half_rd(value));
}

// Two bf16, round to nearest even; `low` in the lower half.
__device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

// Four of the eight bytes of low (0 to 3) and high (4 to 7): the lowest hexadecimal digit of
// `which` names the lowest byte.
__device__ __forceinline__ std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high,
                                                      std::uint32_t which) {
  return __byte_perm(low, high, which);
}

// (word & mask) | bits, in one instruction.
__device__ __forceinline__ std::uint32_t masked_and_set(std::uint32_t word, std::uint32_t mask,
                                                        std::uint32_t bits) {
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}

// a + b of both bf16, round to nearest even.
__device__ __forceinline__ std::uint32_t add_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(0x3f803f80U), "r"(b));  // x 1
  return out;
}

// a b of both bf16, round to nearest even; denormals are numbers like others.
__device__ __forceinline__ std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000U));  // - 0
  return out;
}

// 2^x; 2^-inf is 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// c += a b on a warp, m16n8k16 bf16 with float32 sums. Lane 4 g + t holds
//   a[0], a[2]: row g,     columns 2t, 2t+1 and 2t+8, 2t+9       (16 x 16)
//   a[1], a[3]: row g + 8, the same
//   b[0], b[1]: column g, rows 2t, 2t+1 and 2t+8, 2t+9            (16 x 8)
//   c[0], c[1]: row g, columns 2t, 2t+1;  c[2], c[3]: row g + 8   (16 x 8)
__device__ __forceinline__ void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c += a b on a warp, m16n8k32 of unsigned bytes a and signed bytes b, exactly. Lane 4g + t holds
//   a[0], a[2]: row g,     columns 4t .. 4t+3 and 4t+16 .. 4t+19   (16 x 32)
//   a[1], a[3]: row g + 8, the same
//   b[0], b[1]: column g, rows 4t .. 4t+3 and 4t+16 .. 4t+19        (32 x 8)
//   c[0], c[1]: row g, columns 2t, 2t+1;  c[2], c[3]: row g + 8     (16 x 8)
__device__ __forceinline__ void mma_u8_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                                          const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same of signed bytes a: c = start + a b.
__device__ __forceinline__ void mma_s8_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                                          const std::uint32_t (&b)[2], std::int32_t start) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start));
}

// sum + the products of 4 unsigned bytes with 4 signed ones.
__device__ __forceinline__ std::int32_t dot_u8_s8(std::uint32_t a, std::uint32_t b,
                                                  std::int32_t sum) {
  std::int32_t out;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
  return out;
}

// Rounded each by itself: the compiler fuses none with another operation.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float rounded_sum(float a, float b) { return __fadd_rn(a, b); }

// What a thread reads or writes at once.
struct alignas(16) Words4 {
  std::uint32_t at[4];
};

// 16 aligned bytes of memory that no kernel writes meanwhile, and that nobody reads again soon.
__device__ __forceinline__ Words4 load_once_16(const void* global) {
  Words4 out;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.at[0]), "=r"(out.at[1]), "=r"(out.at[2]), "=r"(out.at[3])
               : "l"(global));
  return out;
}

// The same where other warps read them soon.
__device__ __forceinline__ Words4 load_shared_16(const void* global) {
  Words4 out;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.at[0]), "=r"(out.at[1]), "=r"(out.at[2]), "=r"(out.at[3])
               : "l"(global));
  return out;
}
// As load_once_16, of 8 aligned bytes.
struct alignas(8) Words2 {
  std::uint32_t at[2];
};
__device__ __forceinline__ Words2 load_once_8(const void* global) {
  Words2 out;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];"
               : "=r"(out.at[0]), "=r"(out.at[1])
               : "l"(global));
  return out;
}

// 16 bytes from global to shared memory, both aligned, without waiting; zeros unless `exists`, and
// then `global` is not read.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool exists) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int n_bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(n_bytes)
               : "memory");
}
// Ends a group of such copies, which may be empty.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace longhaul::cuda
