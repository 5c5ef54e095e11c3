// Cached keys and values as floats, of any type and as attention reads them. Host memory only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/kv_block.h"

namespace longhaul {

// Reads the keys in these slots of a block, dimension by dimension.
class KeyReader {
 public:
  KeyReader(const KvBlockShape& shape, const std::byte* block, Extent slots);

  // Dimension d of each: `to` has as many values as there are slots.
  void read(std::int64_t d, std::span<float> to);

 private:
  void read_ranges(std::int64_t d);
  void read_codes(std::int64_t d, float* to) const;

  KvBlockShape shape_;
  const std::byte* block_;
  Extent slots_;
  // Of codes, for each slot: of all its dimensions, or of the one that is read (kivi).
  std::vector<float> scales_;
  std::vector<float> minima_;
};

// The value of one slot of a block: [head_dim].
void read_value(const KvBlockShape& shape, const std::byte* block, std::int64_t slot,
                std::span<float> to);

}  // namespace longhaul
