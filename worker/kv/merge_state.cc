#include "worker/kv/merge_state.h"

#include <algorithm>
#include <utility>

#include "base/device/device_memory.h"
#include "base/ids.h"

namespace longhaul {
namespace {

constexpr std::size_t kFloat = sizeof(float);

// One part of a head's rows.
CopyRowsItem copy_of(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                     std::int64_t row_size, std::int64_t n_rows) {
  return {.to = reinterpret_cast<std::byte*>(to),
          .to_stride = static_cast<std::size_t>(to_stride) * kFloat,
          .from = reinterpret_cast<const std::byte*>(from),
          .from_stride = static_cast<std::size_t>(from_stride) * kFloat,
          .row_bytes = static_cast<std::size_t>(row_size) * kFloat,
          .n_rows = n_rows};
}

}  // namespace

RawRows RawLayout::rows(const float* first, std::int64_t n) const {
  const std::int64_t to_v = first == nullptr ? 0 : head_dim;  // from a null pointer is no step
  return {.k = {first, {n, n_kv_heads, head_dim}, {row_size(), head_size(), 1}},
          .v = {first + to_v, {n, n_kv_heads, head_dim}, {row_size(), head_size(), 1}},
          .weights = {first + 2 * to_v, {n, n_kv_heads}, {row_size(), head_size()}}};
}

RawRows last_rows(const RawRows& rows, std::int64_t n) {
  const Extent last{std::max<std::int64_t>(0, rows.n() - n), rows.n()};
  return {.k = rows.k.slice(0, last),
          .v = rows.v.slice(0, last),
          .weights = rows.weights.slice(0, last)};
}

void RawCopies::add(const RawLayout& layout, const RawRows& from, float* to) {
  if (from.n() == 0) return;
  for (std::int64_t head = 0; head < layout.n_kv_heads; ++head) {
    float* of_head = to + head * layout.head_size();
    for (const TensorView<const float, 3>* x : {&from.k, &from.v}) {
      items_.push_back(copy_of(x->data() + head * x->stride(1), x->stride(0), of_head,
                               layout.row_size(), layout.head_dim, from.n()));
      of_head += layout.head_dim;
    }
    items_.push_back(copy_of(from.weights.data() + head * from.weights.stride(1),
                             from.weights.stride(0), of_head, layout.row_size(), 1, from.n()));
  }
}

void RawCopies::run(StreamRef stream) {
  copy_rows(stream, items_);
  items_.clear();
  sources_.clear();
}

RawRows RawTokens::rows(std::int64_t begin, std::int64_t end) const {
  const float* first = memory_ == nullptr ? nullptr : memory_->data() + begin * layout_.row_size();
  return layout_.rows(first, end - begin);
}

RawRows RawTokens::append(const RawRows& more, std::int64_t n_last, RawCopies& copies) {
  layout_ = {more.k.dim(1), more.k.dim(2)};
  const RawRows added = last_rows(more, n_last);
  const bool has_room =
      memory_ != nullptr && memory_.use_count() == 1 && end_ + added.n() <= capacity_;
  if (!has_room) {
    const RawRows kept = last_rows(rows(), n_last);
    capacity_ = 2 * n_last;  // so that a token at a time moves little
    auto larger = pool_->new_floats(capacity_ * layout_.row_size());
    copies.add(layout_, kept, larger->data());
    copies.hold(std::exchange(memory_, std::move(larger)));
    begin_ = 0;
    end_ = kept.n();
  }
  copies.add(layout_, added, memory_->data() + end_ * layout_.row_size());
  end_ += added.n();
  return rows(begin_, end_ - added.n());
}

std::vector<float> RawTokens::on_host(std::int64_t n_last) const {
  const std::int64_t n = std::min(n_last, end_ - begin_);
  std::vector<float> tokens(static_cast<std::size_t>(n * layout_.row_size()));
  if (tokens.empty()) return tokens;
  const float* first = memory_->data() + (end_ - n) * layout_.row_size();
  copy_to_host(pool_->stream(), std::as_writable_bytes(std::span(tokens)),
               reinterpret_cast<const std::byte*>(first));
  return tokens;
}

void RawTokens::set(const RawLayout& layout, std::span<const float> tokens) {
  layout_ = layout;
  memory_ = nullptr;
  begin_ = 0;
  capacity_ = end_ = static_cast<std::int64_t>(tokens.size()) / layout.row_size();
  if (tokens.empty()) return;
  memory_ = pool_->new_floats(capacity_ * layout.row_size());
  copy_from_host(pool_->stream(), reinterpret_cast<std::byte*>(memory_->data()),
                 std::as_bytes(tokens));
}

}  // namespace longhaul
