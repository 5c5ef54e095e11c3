// Rows of floats on a stream's device: between its tensors, and to and from the host.
#pragma once
#include <cstdint>

#include "base/device/device_memory.h"
#include "kernels/device_tensor.h"
#include "tools/identify/token_rows.h"

namespace longhaul {

inline void copy_floats(StreamRef stream, float* to, const float* from, std::int64_t n) {
  if (n == 0) return;
  copy_bytes(stream, reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
             static_cast<std::size_t>(n) * sizeof(float));
}

// Calls body(run of rows in the larger set, first row in the smaller one).
template <typename Body>
void for_parts(const RowParts& parts, const Body& body) {
  body(parts.first, std::int64_t{0});
  body(parts.last, parts.first.size());
}

// Rows of a part of the tokens, side by side: [parts.size(), width] from [.., width].
inline void copy_parts(StreamRef stream, float* to, const float* from, std::int64_t width,
                       const RowParts& parts) {
  for_parts(parts, [&](Extent rows, std::int64_t at) {
    copy_floats(stream, to + at * width, from + rows.begin * width, rows.size() * width);
  });
}
template <int kRank>
DeviceTensor<float, kRank> rows_of(StreamRef stream, const TensorView<const float, kRank>& x,
                                   const RowParts& parts) {
  auto shape = x.shape();
  shape[0] = parts.size();
  DeviceTensor<float, kRank> out(stream, shape);
  copy_parts(stream, out.data(), x.data(), x.dim(0) == 0 ? 0 : x.size() / x.dim(0), parts);
  return out;
}

// Of a contiguous tensor; waits for the stream's work.
template <int kRank>
Tensor<float, kRank> on_host(StreamRef stream, const TensorView<const float, kRank>& x) {
  Tensor<float, kRank> out(x.shape());
  if (x.size() == 0) return out;
  copy_to_host(stream,
               std::as_writable_bytes(std::span(out.data(), static_cast<std::size_t>(x.size()))),
               reinterpret_cast<const std::byte*>(x.data()));
  return out;
}
template <int kRank>
DeviceTensor<float, kRank> on_device(StreamRef stream, const TensorView<const float, kRank>& x) {
  DeviceTensor<float, kRank> out(stream, x.shape());
  if (x.size() == 0) return out;
  copy_from_host(stream, reinterpret_cast<std::byte*>(out.data()),
                 std::as_bytes(std::span(x.data(), static_cast<std::size_t>(x.size()))));
  return out;
}

}  // namespace longhaul
