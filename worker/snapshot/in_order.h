// Threads make pieces, the caller takes them in order: files are written by one, while others fill
// and check what comes next. Private to this folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace longhaul {

// Threads that keep a disk busy: enough to fill the pauses of one another, few beside the threads
// of the operators.
int n_file_threads();

// Calls make(i, buffer) for each i of [0, n) on threads and then take(i, buffer) for each in order
// on the calling one. A few pieces are made ahead; their buffers are used again. Blocks; throws the
// first exception of either when all threads have ended.
using Piece = std::vector<std::byte>;
void in_order(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& make,
              const std::function<void(std::int64_t, Piece&)>& take);

// Calls work(i, buffer) for each i of [0, n) on threads, begun in order. The same otherwise.
void in_parallel(std::int64_t n, const std::function<void(std::int64_t, Piece&)>& work);

}  // namespace longhaul
