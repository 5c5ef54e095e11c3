// Cached keys and values as floats, of any type and as attention reads them. Host memory only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Dimension d of the keys in these slots of a block: `to` has as many values.
void read_key_dim(const KvBlockShape& shape, const std::byte* block, std::int64_t d, Extent slots,
                  std::span<float> to);

// The value of one slot of a block: [head_dim].
void read_value(const KvBlockShape& shape, const std::byte* block, std::int64_t slot,
                std::span<float> to);

}  // namespace longhaul
