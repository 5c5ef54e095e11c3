// Threads that make and write, or read and check, the pieces of files. Private to this folder and
// to what measures it (tools/bench).
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/host_memory.h"

namespace longhaul {

// Threads that keep a disk busy: enough to fill the pauses of one another, since each waits for
// what it reads or writes; few beside the threads of the operators.
int n_file_threads();

// Threads that read `n` pieces and check and convert each, which takes about as long as reading it:
// up to twice as many, so that the disk has requests while as many are computing. Disks of virtual
// machines answer all requests they hold at once, and would be idle after that. The more only where
// each has many pieces: its buffer is new memory, which the system clears.
int n_checking_threads(std::int64_t n);

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

// Calls work(i, buffer) for each i from 0 on, on threads, begun in order, while its owner still
// finds out what there is to do; each thread uses its buffer again.
class PieceThreads {
 public:
  using Work = std::function<void(std::int64_t, Piece&)>;
  explicit PieceThreads(Work work, int n_threads = n_file_threads())
      : work_(std::move(work)), n_threads_(n_threads) {}
  // What no thread has begun is left out.
  ~PieceThreads();
  PieceThreads(const PieceThreads&) = delete;
  PieceThreads& operator=(const PieceThreads&) = delete;

  // Those below `n` may be begun. Does not block.
  void allow(std::int64_t n);
  // Blocks until all that are allowed are done; throws the first exception.
  void finish();

 private:
  void run();
  void join();

  Work work_;
  int n_threads_;  // at most
  std::vector<std::thread> threads_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::int64_t n_allowed_ = 0;
  std::int64_t n_begun_ = 0;
  bool is_complete_ = false;  // no more will be allowed
  std::exception_ptr failure_;
};

// Of [0, n). Blocks; throws the first exception when all threads have ended.
void in_parallel(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& work,
                 int n_threads = n_file_threads());

}  // namespace longhaul
