// Brings together, on every rank of a ring, a matrix of which each rank has computed some columns.
// Nothing is added up, so the result does not depend on how many ranks there are.
//
//   3 ranks with columns 0-1, 4 and 2-3:   a a . . .    . . . . c    . . b b .   ->   a a b b c
#pragma once
#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "kernels/copy_rows.h"
#include "kernels/tensor.h"
#include "worker/ring/byte_buffer.h"
#include "worker/ring/of_ring.h"
#include "worker/ring/ring_context.h"

namespace longhaul {

// Whose columns are whose: of each rank in runs, in the order in which it has them.
using ColumnsOfRing = OfRing<std::vector<Extent>>;

// Used by one thread; the context must outlive it. Host memory.
class ColumnGather {
 public:
  explicit ColumnGather(RingContext& context) : context_(context) {}

  // Collective over the ring. `own` [n_rows, this rank's columns] side by side, contiguous; `whole`
  // [n_rows, n], contiguous, is filled but for columns that nobody has. They do not overlap.
  void run(const ColumnsOfRing& columns, const TensorView<const float, 2>& own,
           const TensorView<float, 2>& whole);

  std::size_t buffer_bytes() const { return gathered_.capacity(); }

 private:
  RingContext& context_;
  ByteBuffer gathered_;  // [ring][n_rows, its columns]
  std::vector<std::size_t> sizes_;
  std::vector<CopyRowsItem> copies_;
};

}  // namespace longhaul
