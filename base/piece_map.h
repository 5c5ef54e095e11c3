// Which pieces of a stretch of memory are taken: the bookkeeping of cuda::MemoryArena
// (base/device/device_cuda.h), which knows no memory, only offsets.
#pragma once
#include <cstddef>
#include <map>
#include <optional>

namespace longhaul {

// Not thread-safe.
class PieceMap {
 public:
  static constexpr std::size_t kAlignment = 256;  // of offsets, as GPUs' own
  explicit PieceMap(std::size_t bytes);

  // Where a piece of so many bytes begins: in the smallest gap that it fits into, at the gap's
  // beginning. Empty where there is none.
  std::optional<std::size_t> take(std::size_t bytes);
  // A piece that take() gave; gaps beside it become one with it.
  void give_back(std::size_t offset);

  std::size_t bytes() const { return bytes_; }
  std::size_t bytes_taken() const { return bytes_taken_; }
  std::size_t most_taken() const { return most_taken_; }  // at any time

 private:
  std::size_t bytes_;
  std::size_t bytes_taken_ = 0;
  std::size_t most_taken_ = 0;
  std::map<std::size_t, std::size_t> gaps_;  // offset -> bytes
  std::map<std::size_t, std::size_t> taken_;
};

}  // namespace longhaul
