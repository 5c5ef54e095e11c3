// Threads make pieces, the caller takes them in order: files are written by one, while others fill
// and check what comes next. Private to this folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace longhaul {

// Threads that keep a disk busy: enough to fill the pauses of one another, few beside the threads
// of the operators.
int n_file_threads();

// Bytes that are written before they are read: a new size clears nothing, and takes memory only
// where it is the largest so far.
class Piece {
 public:
  void set_size(std::size_t n_bytes) {
    if (n_bytes > room_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(n_bytes);
      room_ = n_bytes;
    }
    size_ = n_bytes;
  }
  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::byte* begin() { return data(); }  // for std::span
  std::byte* end() { return data() + size_; }
  const std::byte* begin() const { return data(); }
  const std::byte* end() const { return data() + size_; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t room_ = 0;
  std::size_t size_ = 0;
};

// Calls make(i, buffer) for each i of [0, n) on threads and then take(i, buffer) for each in order
// on the calling one. A few pieces are made ahead; their buffers are used again. Blocks; throws the
// first exception of either when all threads have ended.
void in_order(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& make,
              const std::function<void(std::int64_t, Piece&)>& take);

// Calls work(i, buffer) for each i of [0, n) on threads, begun in order. The same otherwise.
void in_parallel(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& work);

}  // namespace longhaul
