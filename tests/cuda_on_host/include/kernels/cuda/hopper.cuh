// kernels/cuda/hopper.cuh on the CPU; shadows it. The same names with the same meaning.
#pragma once
#include "kernels/cuda/instructions.cuh"
#include "tests/cuda_on_host/warpgroup.h"

namespace longhaul::cuda {

constexpr int kWarpgroup = 128;

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void leave_registers() {}

inline void init_barrier(std::uint64_t* barrier, int count) {
  cuda_on_host::init_mbarrier(barrier, count);
}
inline void fence_barrier_init() {}
inline void arrive(std::uint64_t* barrier) { cuda_on_host::arrive_at(barrier, 0); }
inline void arrive_and_expect(std::uint64_t* barrier, int bytes) {
  cuda_on_host::arrive_at(barrier, bytes);
}
inline void wait_for(std::uint64_t* barrier, int parity) { cuda_on_host::wait_at(barrier, parity); }
inline void copy_bulk(void* shared, const void* global, int bytes, std::uint64_t* barrier) {
  cuda_on_host::copy_bulk(shared, global, static_cast<std::size_t>(bytes), barrier);
}

template <int kThreads>
void wait_at_number(int number) {
  cuda_on_host::wait_at_number(number, kThreads);
}
template <int kThreads>
void arrive_at_number(int number) {
  cuda_on_host::arrive_at_number(number, kThreads);
}

inline std::uint64_t right_side(const void* shared, int column_bytes, int k_bytes) {
  return static_cast<std::uint64_t>((cuda_on_host::shared_offset(shared) & 0x3ffffU) >> 4U) |
         static_cast<std::uint64_t>(k_bytes >> 4) << 16U |
         static_cast<std::uint64_t>(column_bytes >> 4) << 32U;
}

template <typename... Registers>
void wgmma_fence(Registers&...) {
  cuda_on_host::fence_products();
}
inline void wgmma_commit() { cuda_on_host::commit_products(); }
template <int kPending, int kGroups>
void wgmma_wait(float (&)[kGroups][4]) {
  cuda_on_host::finish_products(kPending);
}
inline void compute_first(float value, void*) {
  if (value < 0.0F) __builtin_trap();
}
template <int kGroups>
void wgmma_bf16(float (&d)[kGroups][4], const std::uint32_t (&a)[4], std::uint64_t b,
                bool accumulates) {
  static_assert(kGroups == 8 || kGroups == 16);
  cuda_on_host::begin_product(&d[0][0], 8 * kGroups, a, b, accumulates);
}

}  // namespace longhaul::cuda
