// Cached keys as floats, for what looks at them one dimension at a time. Host memory only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Dimension d of the keys in these slots of a block of any type, as attention reads them: `to` has
// as many values.
void read_key_dim(const KvBlockShape& shape, const std::byte* block, std::int64_t d, Extent slots,
                  std::span<float> to);

}  // namespace longhaul
