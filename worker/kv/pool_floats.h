// Floats beside a pool's blocks, in the memory of its device: the host's, or a piece of a GPU's
// memory for tables, which is given out again without the GPU having to wait.
#pragma once
#include <cstdint>
#include <memory>

#include "base/device/device.h"
#include "kernels/tensor.h"
#include "worker/kv/table_memory.h"

namespace longhaul {

// What they are at first is not defined. The memory must outlive them.
class PoolFloats {
 public:
  // Throws kOutOfMemory.
  PoolFloats(std::int64_t n, TableMemory& memory, StreamRef stream);
  float* data() const;

 private:
  Tensor<float, 1> on_host_;
  std::shared_ptr<TableMemory::Piece> on_gpu_;
};

}  // namespace longhaul
