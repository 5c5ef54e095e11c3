// Pinned host memory between a GPU and the network, kept and used again: pinning is slow.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "base/device/device_cuda.h"

namespace longhaul {

// Memory and the point in a stream's work at which it is free again.
struct PinnedBlock {
  cuda::PinnedBuffer buffer;
  cuda::Event copied;  // recorded behind the last copy that uses the memory

  std::byte* data() const { return buffer.data(); }
};

// Used by one thread.
class PinnedPool {
 public:
  PinnedPool() : free_(std::make_shared<Free>()) {}
  // At least `bytes`, not initialised. The pool has it back when the last owner is gone; a copy may
  // still be under way then, and the memory waits for it before it is used again.
  std::shared_ptr<PinnedBlock> take(std::size_t bytes);
  // Taken from the system so far.
  std::size_t bytes_reserved() const { return bytes_reserved_; }

 private:
  using Free = std::vector<std::unique_ptr<PinnedBlock>>;
  std::shared_ptr<Free> free_;  // blocks may outlive the pool
  std::size_t bytes_reserved_ = 0;
};

}  // namespace longhaul
