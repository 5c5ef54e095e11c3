#include "worker/ring/column_gather.h"

#include <numeric>

namespace longhaul {
namespace {

std::size_t bytes_of(std::int64_t n_floats) {
  return static_cast<std::size_t>(n_floats) * sizeof(float);
}

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
  for (const auto& of_rank : columns) sizes_.push_back(bytes_of(n_rows * width_of(of_rank)));
  const std::size_t n_bytes = std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{0});
  std::byte* gathered = gathered_.reserve(context_.stream, n_bytes);
  {
    const PhaseTimer timer(context_.times, Phase::kRingWait);
    const RingContext::WaitMark mark(context_.board);
    context_.comm.all_gather({reinterpret_cast<const std::byte*>(own.data()), bytes_of(own.size())},
                             sizes_, {gathered, n_bytes});
  }
  copies_.clear();
  for (const RingPos from : columns.ids()) {
    const std::int64_t width = width_of(columns[from]);
    std::int64_t at = 0;
    for (const Extent& run : columns[from]) {
      copies_.push_back({.to = reinterpret_cast<std::byte*>(whole.data() + run.begin),
                         .to_stride = bytes_of(whole.stride(0)),
                         .from = gathered + bytes_of(at),
                         .from_stride = bytes_of(width),
                         .row_bytes = bytes_of(run.size()),
                         .n_rows = n_rows});
      at += run.size();
    }
    gathered += bytes_of(n_rows * width);
  }
  copy_rows(context_.stream, copies_);
}

}  // namespace longhaul
