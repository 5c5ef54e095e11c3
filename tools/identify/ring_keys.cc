#include "tools/identify/ring_keys.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/kv_append.h"

namespace longhaul {

Tensor<float, 3> gather_rows(Communicator& comm, const TokenDeal& deal, const TokenSet& set,
                             Tensor<float, 3> own) {
  if (comm.size() == 1) return own;
  const std::int64_t width = own.dim(1) * own.dim(2);
  std::vector<std::vector<std::int64_t>> positions_of;
  std::vector<std::int64_t> all_positions;
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < comm.size(); ++rank) {
    positions_of.push_back(deal.positions(set, rank));
    all_positions.insert(all_positions.end(), positions_of.back().begin(),
                         positions_of.back().end());
    sizes.push_back(positions_of.back().size() * static_cast<std::size_t>(width) * sizeof(float));
  }
  std::sort(all_positions.begin(), all_positions.end());
  std::vector<float> by_rank(all_positions.size() * static_cast<std::size_t>(width));
  comm.all_gather(std::as_bytes(std::span(own.data(), static_cast<std::size_t>(own.size()))), sizes,
                  std::as_writable_bytes(std::span(by_rank)));
  Tensor<float, 3> all({static_cast<std::int64_t>(all_positions.size()), own.dim(1), own.dim(2)});
  const float* from = by_rank.data();
  for (const auto& positions : positions_of) {
    for (const std::int64_t position : positions) {
      const auto row = std::lower_bound(all_positions.begin(), all_positions.end(), position) -
                       all_positions.begin();
      std::copy_n(from, width, all.data() + row * width);
      from += width;
    }
  }
  return all;
}

RingKeys::RingKeys(Communicator& comm, const KvBlockShape& shape, std::int64_t n_kv_heads)
    : comm_(comm), shape_(shape), n_kv_heads_(n_kv_heads) {}

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
  memory_ = Tensor<float, 1>({floats});
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
  kv_append(StreamRef::cpu(), {.shape = shape_, .items = items});
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
