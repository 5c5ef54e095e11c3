// Threads that make and write, or read and check, the pieces of files. Private to this folder and
// to what measures it (tools/bench).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/host_memory.h"

namespace longhaul {

// Threads that keep a disk busy: enough to fill the pauses of one another, since each waits for
// what it reads or writes; few beside the threads of the operators.
int n_file_threads();

// Bytes that are written before they are read: a new size clears nothing, and takes memory only
// where it is the largest so far. In huge pages, so that disks read into it with few requests.
class Piece {
 public:
  void set_size(std::size_t n_bytes) {
    if (n_bytes > memory_.bytes()) memory_ = HostMemory(std::max(n_bytes, kHugePageBytes));
    size_ = n_bytes;
  }
  std::byte* data() { return memory_.data(); }
  const std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return size_; }
  std::byte* begin() { return data(); }  // for std::span
  std::byte* end() { return data() + size_; }
  const std::byte* begin() const { return data(); }
  const std::byte* end() const { return data() + size_; }

 private:
  HostMemory memory_;
  std::size_t size_ = 0;
};

// Calls work(i, buffer) for each i of [0, n) on threads, begun in order; each thread uses its
// buffer again. Blocks; throws the first exception when all threads have ended.
void in_parallel(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& work);

}  // namespace longhaul
