// Which query heads see a slot of a block (KvBlockRef::seen_by), as kernels read it.
#pragma once
#include <cstdint>

#include "kernels/cuda/kv_words.cuh"
#include "kernels/kv_block.h"

namespace longhaul::cuda {

LONGHAUL_HOST_DEVICE constexpr bool is_seen_by(const SeenBy* seen_by, std::int64_t slot,
                                               std::int64_t head) {
  return seen_by == nullptr || (seen_by[slot] >> head & 1) != 0;
}

}  // namespace longhaul::cuda
