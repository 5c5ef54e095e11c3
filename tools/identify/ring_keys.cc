#include "tools/identify/ring_keys.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "kernels/copy_rows.h"
#include "kernels/kv_append.h"

namespace longhaul {

namespace {

// Where a rank's rows of a set stand among those of all ranks: its blocks, as runs of rows.
class RowRuns {
 public:
  RowRuns(const TokenDeal& deal, const TokenSet& set) : deal_(deal), set_(set) {
    std::vector<std::int64_t> numbers;
    for (int rank = 0; rank < deal.n_ranks; ++rank) {
      const std::vector<std::int64_t> own = deal.blocks(set, rank);
      numbers.insert(numbers.end(), own.begin(), own.end());
    }
    std::sort(numbers.begin(), numbers.end());
    for (const std::int64_t number : numbers) {
      first_of_[number] = n_;
      n_ += size_of(number);
    }
  }
  std::int64_t n() const { return n_; }
  // Calls body(first row among the rank's, first row among all, rows).
  template <typename Body>
  void of(int rank, const Body& body) const {
    std::int64_t own = 0;
    for (const std::int64_t number : deal_.blocks(set_, rank)) {
      body(own, first_of_.at(number), size_of(number));
      own += size_of(number);
    }
  }
  std::int64_t n_of(int rank) const {
    std::int64_t n = 0;
    of(rank, [&](std::int64_t, std::int64_t, std::int64_t rows) { n += rows; });
    return n;
  }

 private:
  std::int64_t size_of(std::int64_t number) const {
    const std::int64_t first = number * deal_.block_size;
    return std::min(deal_.n_tokens, first + deal_.block_size) - first;
  }
  const TokenDeal& deal_;
  const TokenSet& set_;
  std::map<std::int64_t, std::int64_t> first_of_;  // row of a block
  std::int64_t n_ = 0;
};

CopyRowsItem copy_of(float* to, const float* from, std::int64_t width, std::int64_t n_rows) {
  const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(float);
  return {.to = reinterpret_cast<std::byte*>(to),
          .to_stride = bytes,
          .from = reinterpret_cast<const std::byte*>(from),
          .from_stride = bytes,
          .row_bytes = bytes,
          .n_rows = n_rows};
}

}  // namespace

DeviceTensor<float, 3> gather_rows(StreamRef stream, Communicator& comm, const TokenDeal& deal,
                                   const TokenSet& set, DeviceTensor<float, 3> own) {
  if (comm.size() == 1) return own;
  const std::int64_t width = own.dim(1) * own.dim(2);
  const RowRuns runs(deal, set);
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < comm.size(); ++rank)
    sizes.push_back(static_cast<std::size_t>(runs.n_of(rank) * width) * sizeof(float));
  const DeviceTensor<float, 2> by_rank(stream, {runs.n(), width});
  const auto bytes_of = [](const auto& x) {
    return std::span(reinterpret_cast<std::byte*>(x.data()),
                     static_cast<std::size_t>(x.size()) * sizeof(float));
  };
  comm.all_gather(bytes_of(own), sizes, bytes_of(by_rank));
  DeviceTensor<float, 3> all(stream, {runs.n(), own.dim(1), own.dim(2)});
  std::vector<CopyRowsItem> items;
  const float* from = by_rank.data();
  for (int rank = 0; rank < comm.size(); ++rank) {
    runs.of(rank, [&](std::int64_t, std::int64_t row, std::int64_t n_rows) {
      items.push_back(copy_of(all.data() + row * width, from, width, n_rows));
      from += n_rows * width;
    });
  }
  copy_rows(stream, items);
  return all;
}

DeviceTensor<float, 3> own_rows(StreamRef stream, const Communicator& comm, const TokenDeal& deal,
                                const TokenSet& set, const TensorView<const float, 3>& all) {
  const std::int64_t width = all.dim(1) * all.dim(2);
  const RowRuns runs(deal, set);
  DeviceTensor<float, 3> own(stream, {runs.n_of(comm.rank()), all.dim(1), all.dim(2)});
  std::vector<CopyRowsItem> items;
  runs.of(comm.rank(), [&](std::int64_t at, std::int64_t row, std::int64_t n_rows) {
    items.push_back(copy_of(own.data() + at * width, all.data() + row * width, width, n_rows));
  });
  copy_rows(stream, items);
  return own;
}

RingKeys::RingKeys(StreamRef stream, Communicator& comm, const KvBlockShape& shape,
                   std::int64_t n_kv_heads)
    : stream_(stream), comm_(comm), shape_(shape), n_kv_heads_(n_kv_heads) {}

std::byte* RingKeys::block(std::int64_t index, std::int64_t kv_head) {
  const std::size_t at = static_cast<std::size_t>(index * n_kv_heads_ + kv_head) * shape_.bytes();
  return reinterpret_cast<std::byte*>(memory_.data()) + at;
}

void RingKeys::begin(const TokenDeal& deal, const TokenSet& set) {
  require(deal.block_size == shape_.block_size && deal.n_ranks == comm_.size(),
          "RingKeys: blocks are dealt otherwise than they are held");
  numbers_.clear();
  n_tokens_ = deal.n_tokens;
  n_appended_ = 0;
  std::int64_t n_blocks = 0;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) first_own_ = n_blocks;
    numbers_.push_back(deal.blocks(set, rank));
    n_blocks += static_cast<std::int64_t>(numbers_.back().size());
  }
  const std::int64_t floats =
      n_blocks * n_kv_heads_ * static_cast<std::int64_t>(shape_.bytes() / sizeof(float));
  if (memory_.data() != nullptr && memory_.size() >= floats) return;
  memory_ = {};  // frees first, so that the old and the new never coexist
  memory_ = DeviceTensor<float, 1>(stream_, {floats});
}

void RingKeys::append(const TensorView<const float, 3>& k, const TensorView<const float, 3>& v) {
  const std::int64_t n_rows = k.dim(0);
  if (n_rows == 0) return;
  require(n_appended_ % shape_.block_size == 0, "RingKeys: rows behind a block that is not whole");
  const std::int64_t first = first_own_ + n_appended_ / shape_.block_size;
  const std::int64_t n_blocks = ceil_div(n_rows, shape_.block_size);
  std::vector<std::byte*> blocks;
  for (std::int64_t head = 0; head < n_kv_heads_; ++head) {
    for (std::int64_t i = 0; i < n_blocks; ++i) blocks.push_back(block(first + i, head));
  }
  std::vector<KvAppendItem> items;
  for (std::int64_t head = 0; head < n_kv_heads_; ++head) {
    const auto rows_of = [&](const TensorView<const float, 3>& x) {
      return TensorView<const float, 2>(x[0][head].data(), {n_rows, x.dim(2)}, {x.stride(0), 1});
    };
    items.push_back({.k = rows_of(k),
                     .v = rows_of(v),
                     .blocks = std::span(blocks).subspan(static_cast<std::size_t>(head * n_blocks),
                                                         static_cast<std::size_t>(n_blocks))});
  }
  kv_append(stream_, {.shape = shape_, .items = items});
  n_appended_ += n_rows;
}

void RingKeys::gather() {
  const std::size_t block_bytes = static_cast<std::size_t>(n_kv_heads_) * shape_.bytes();
  std::vector<std::size_t> sizes;
  std::size_t total = 0;
  for (const auto& numbers : numbers_) {
    sizes.push_back(numbers.size() * block_bytes);
    total += sizes.back();
  }
  const std::span<std::byte> all{reinterpret_cast<std::byte*>(memory_.data()), total};
  if (comm_.size() > 1) {
    const auto own = static_cast<std::size_t>(first_own_) * block_bytes;
    comm_.all_gather(all.subspan(own, sizes[static_cast<std::size_t>(comm_.rank())]), sizes, all);
  }
  refs_.assign(static_cast<std::size_t>(n_kv_heads_), {});
  std::int64_t index = 0;
  for (const auto& numbers : numbers_) {
    for (const std::int64_t number : numbers) {
      const std::int64_t first = number * shape_.block_size;
      for (std::int64_t head = 0; head < n_kv_heads_; ++head) {
        refs_[static_cast<std::size_t>(head)].push_back(
            {.data = block(index, head),
             .first_position = first,
             .n_tokens = std::min(shape_.block_size, n_tokens_ - first)});
      }
      ++index;
    }
  }
}

}  // namespace longhaul
