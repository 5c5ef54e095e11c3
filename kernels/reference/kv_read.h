// What cache blocks hold, as floats: for tests only. Host memory.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/kv_block.h"
#include "kernels/tensor.h"

namespace longhaul {

// Slots [first_slot, first_slot + out.dim(0)) of one block.
void kv_read_k(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out);
void kv_read_v(const KvBlockShape& shape, const std::byte* block, std::int64_t first_slot,
               TensorView<float, 2> out);

}  // namespace longhaul
