#include "worker/ring/column_gather.h"

#include <numeric>

#include "worker/ring/float_bytes.h"

namespace longhaul {
namespace {

std::int64_t width_of(const std::vector<Extent>& columns) {
  std::int64_t n = 0;
  for (const Extent& run : columns) n += run.size();
  return n;
}

}  // namespace

void ColumnGather::run(const ColumnsOfRing& columns, const TensorView<const float, 2>& own,
                       const TensorView<float, 2>& whole) {
  const std::int64_t n_rows = whole.dim(0);
  sizes_.clear();
  for (const auto& of_rank : columns) sizes_.push_back(float_bytes(n_rows * width_of(of_rank)));
  const std::size_t n_bytes = std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{0});
  std::byte* gathered = gathered_.reserve(context_.stream, n_bytes);
  {
    const PhaseTimer timer(context_.times, Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather({as_bytes(own.data()), float_bytes(own.size())}, sizes_,
                             {gathered, n_bytes});
  }
  copies_.clear();
  for (const RingPos from : columns.ids()) {
    const std::int64_t width = width_of(columns[from]);
    std::int64_t at = 0;
    for (const Extent& run : columns[from]) {
      copies_.push_back({.to = as_bytes(whole.data() + run.begin),
                         .to_stride = float_bytes(whole.stride(0)),
                         .from = gathered + float_bytes(at),
                         .from_stride = float_bytes(width),
                         .row_bytes = float_bytes(run.size()),
                         .n_rows = n_rows});
      at += run.size();
    }
    gathered += float_bytes(n_rows * width);
  }
  copy_rows(context_.stream, copies_);
}

}  // namespace longhaul
