// What a thread block of thread_block.h does on chips of compute capability 9.0: barriers in shared
// memory and with a number, bulk copies that complete on them, products of warpgroups. All as late
// as CUDA allows: a copy is made when no thread can go on without one, products are computed when
// they are waited for. Until then their outputs hold NaN, and whoever writes there, or to their
// inputs, aborts.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cuda_on_host {

void init_mbarrier(std::uint64_t* barrier, int count);
// With `bytes` of copies to be expected first.
void arrive_at(std::uint64_t* barrier, int bytes);
void wait_at(std::uint64_t* barrier, int parity);
void copy_bulk(void* to, const void* from, std::size_t bytes, std::uint64_t* barrier);

// The place of shared memory as descriptors have it.
std::uint32_t shared_offset(const void* at);

// Registers of this thread may be used by products. Aborts when begin_product is called without.
void fence_products();
// d [columns / 8, 4] (+)= a b; `b` is a descriptor without swizzling. `a` [4] is read when the
// product is computed, and until then must not be written.
void begin_product(float* d, int columns, const std::uint32_t* a, std::uint64_t b,
                   bool accumulates);
// Ends a group of products.
void commit_products();
// By all threads of a warpgroup: all products but those of the last n_pending_groups groups, and of
// a group that has not ended, are computed.
void finish_products(std::size_t n_pending_groups);

// Barriers with a number, 1 to 15: each time n_threads have come, those that wait go on.
void wait_at_number(int number, unsigned n_threads);
void arrive_at_number(int number, unsigned n_threads);

}  // namespace longhaul::cuda_on_host
