// Instructions of compute capability 9.0a for which C++ has no name: matrix products of whole
// warpgroups, barriers in shared memory, and copies that complete on them. A part of the CUDA
// language that kernels use, as instructions.cuh; tests/cuda_on_host has another one of this name.
//
// In code for other chips the functions do nothing: kernels that call them are not launched there.
#pragma once
#include "kernels/cuda/instructions.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LONGHAUL_HAS_WGMMA
#endif

namespace longhaul::cuda {

constexpr int kWarpgroup = 128;  // threads: four warps, the first of which is a multiple of 4

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// --- registers ----------------------------------------------------------------------------------

// From now on each thread of this warpgroup has so many registers, a multiple of 8: more or fewer
// than the kernel began with, which its __launch_bounds__(threads, 1) say. By all its warps.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// --- barriers in shared memory ------------------------------------------------------------------
// A phase ends when `count` threads have arrived and all bytes that were expected have come;
// waiting for parity p ends when the phases 0, 2, 4 ... (p = 0) or 1, 3 ... (p = 1) have: the one
// that is meant must be the current one or the one before it.

// By one thread; then fence_barrier_init, and a barrier of the thread block before others use it.
__device__ __forceinline__ void init_barrier(std::uint64_t* barrier, int count) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
#endif
}
__device__ __forceinline__ void fence_barrier_init() {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// What this thread wrote before is visible to those who wait for the phase.
__device__ __forceinline__ void arrive(std::uint64_t* barrier) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
// And lets the phase wait for so many bytes of copies.
__device__ __forceinline__ void arrive_and_expect(std::uint64_t* barrier, int bytes) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
__device__ __forceinline__ void wait_for(std::uint64_t* barrier, int parity) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

// --- barriers with a number ---------------------------------------------------------------------
// 1 to 15 (0 is __syncthreads); each time kThreads, whole warps, have come, those that wait go on.

template <int kThreads>
__device__ __forceinline__ void wait_at_number(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void arrive_at_number(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// --- bulk copies --------------------------------------------------------------------------------

// Bytes from global to shared memory, in multiples of 16, both aligned to 16, by one thread and
// without waiting; they count for the barrier's phase when they have come.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes,
                                          std::uint64_t* barrier) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

// --- products of a warpgroup --------------------------------------------------------------------

// A matrix in shared memory [columns, 16 k] as the right side of a product, without swizzling:
// pieces of 8 columns x 8 k are 128 bytes, 16 for each column; from 8 columns to the next
// `column_bytes`, from 8 k to the next `k_bytes`.
__device__ __forceinline__ std::uint64_t right_side(const void* shared, int column_bytes,
                                                    int k_bytes) {
  return static_cast<std::uint64_t>((shared_address(shared) & 0x3ffffU) >> 4U) |
         static_cast<std::uint64_t>(k_bytes >> 4) << 16U |
         static_cast<std::uint64_t>(column_bytes >> 4) << 32U;
}

// Instructions that read or write these registers stay on their side of it.
template <int kGroups>
__device__ __forceinline__ void fence_registers(float (&d)[kGroups][4]) {
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
  }
}
template <int kSteps>
__device__ __forceinline__ void fence_registers(std::uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int n = 0; n < kSteps; ++n) {
    asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
  }
}

// Before the first product, and before each whose registers were written by other instructions:
// these.
template <typename... Registers>
__device__ __forceinline__ void wgmma_fence(Registers&... registers) {
  (fence_registers(registers), ...);
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Ends a group of products, which are done in order.
__device__ __forceinline__ void wgmma_commit() {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until at most kPending of this warpgroup's groups are under way; then `d`, of the others, may be
// used.
template <int kPending, int kGroups>
__device__ __forceinline__ void wgmma_wait(float (&d)[kGroups][4]) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
  fence_registers(d);
}

// `value`, which is no negative number, is computed before any wait that follows. Nothing else
// keeps ptxas (of CUDA 13.0) from waiting first, where nothing depends on the order: a store to
// `shared` that depends on the value, and is never made.
__device__ __forceinline__ void compute_first(float value, void* shared) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.lt.f32 p, %0, 0f00000000;\n"
      "@p st.shared.f32 [%1], %0;\n"
      "}\n" ::"f"(value),
      "r"(shared_address(shared))
      : "memory");
#endif
}

// d = a b, or d += a b, of a warpgroup: 64 rows, 16 k, begun and not waited for. Warp w of the four
// has rows 16 w to 16 w + 15; its lane 4g + t holds
//   a[0], a[2]: row g,     k 2t, 2t+1 and 2t+8, 2t+9
//   a[1], a[3]: row g + 8, the same
//   d[n][0], d[n][1]: row g, columns 8n + 2t, 8n + 2t + 1;  d[n][2], d[n][3]: row g + 8
// 64 columns.
__device__ __forceinline__ void wgmma_bf16(float (&d)[8][4], const std::uint32_t (&a)[4],
                                           std::uint64_t b, bool accumulates) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
        "r"(static_cast<std::int32_t>(accumulates)));
#endif
}

// The same with 128 columns.
__device__ __forceinline__ void wgmma_bf16(float (&d)[16][4], const std::uint32_t (&a)[4],
                                           std::uint64_t b, bool accumulates) {
#ifdef LONGHAUL_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]),
        "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
        "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]),
        "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]),
        "+f"(d[15][2]), "+f"(d[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
        "r"(static_cast<std::int32_t>(accumulates)));
#endif
}

}  // namespace longhaul::cuda
