// Views of tensors in memory that somebody else owns, and an owner for host memory. Outermost
// dimension first, row-major; the innermost dimension is always contiguous, outer ones may be
// strided (a head out of many, a slice of rows).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"
#include "base/fp8_format.h"
#include "base/host_memory.h"
#include "base/ids.h"
#include "base/int4_format.h"
#include "base/int8_format.h"

namespace longhaul {

template <typename T, int kRank>
class TensorView {
  static_assert(kRank >= 1);

 public:
  using Shape = std::array<std::int64_t, kRank>;

  TensorView() = default;
  // Contiguous, row-major.
  TensorView(T* data, const Shape& shape) : data_(data), shape_(shape) {
    std::int64_t stride = 1;
    for (int i = kRank - 1; i >= 0; --i) {
      strides_[static_cast<std::size_t>(i)] = stride;
      stride *= shape[static_cast<std::size_t>(i)];
    }
  }
  TensorView(T* data, const Shape& shape, const Shape& strides)
      : data_(data), shape_(shape), strides_(strides) {}
  // Views of T convert to views of const T.
  template <typename U>
  requires(std::is_same_v<const U, T>)
      TensorView(const TensorView<U, kRank>& other)  // NOLINT: implicit on purpose
      : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

  T* data() const { return data_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  std::int64_t dim(int i) const { return shape_[static_cast<std::size_t>(i)]; }
  std::int64_t stride(int i) const { return strides_[static_cast<std::size_t>(i)]; }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (const auto d : shape_) n *= d;
    return n;
  }
  bool is_contiguous() const { return strides_ == TensorView(data_, shape_).strides_; }

  // Element or sub-view number i of the outermost dimension.
  decltype(auto) operator[](std::int64_t i) const {
    if constexpr (kRank == 1) {
      return static_cast<T&>(data_[i * strides_[0]]);
    } else {
      std::array<std::int64_t, kRank - 1> shape;
      std::array<std::int64_t, kRank - 1> strides;
      for (std::size_t d = 1; d < kRank; ++d) {
        shape[d - 1] = shape_[d];
        strides[d - 1] = strides_[d];
      }
      return TensorView<T, kRank - 1>(data_ + i * strides_[0], shape, strides);
    }
  }
  // Elements [extent) of dimension `dimension`; the others whole.
  TensorView slice(int dimension, Extent extent) const {
    TensorView out = *this;
    out.data_ += extent.begin * stride(dimension);
    out.shape_[static_cast<std::size_t>(dimension)] = extent.size();
    return out;
  }

 private:
  T* data_ = nullptr;
  Shape shape_{};
  Shape strides_{};
};

// Owns a contiguous tensor in host memory, aligned to 64 bytes, zero-filled. Move-only.
template <typename T, int kRank>
class Tensor {
 public:
  using Shape = std::array<std::int64_t, kRank>;
  Tensor() = default;
  explicit Tensor(const Shape& shape) : view_(nullptr, shape) {
    const auto n = static_cast<std::size_t>(view_.size());
    memory_ = HostMemory(n * sizeof(T));
    if (!memory_.began_as_zeros()) std::uninitialized_value_construct_n(data(), n);
    view_ = TensorView<T, kRank>(data(), shape);
  }
  TensorView<T, kRank> view() { return view_; }
  TensorView<const T, kRank> view() const { return view_; }
  T* data() { return reinterpret_cast<T*>(memory_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data()); }
  std::int64_t dim(int i) const { return view_.dim(i); }
  std::int64_t size() const { return view_.size(); }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  HostMemory memory_;
  TensorView<T, kRank> view_;
};

// A weight matrix of any supported type: [n_out, n_in], rows contiguous; those of integers in
// panels, see kernels/int8_weights.h and int4_weights.h; of fp8 see fp8_weights.h. Does not own its
// memory.
struct WeightView {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // kF32, kBf16, kI8, kI4 or kF8E4m3
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  std::int64_t row_stride = 0;  // elements from row to row; 0: n_in
  // Of int8 weights only:
  const float* scales = nullptr;  // of each lane of the panels, the first of which `data` is
  // Of integers:
  std::int64_t group = 0;       // neighbouring inputs whose activations share a scale
  std::int64_t first_lane = 0;  // of the first panel (of fp8: block of outputs): output 0
  // Of int4 weights only:
  Int4Layout int4 = {};
  const std::uint16_t* group_scales = nullptr;  // f16 [panels, groups of stride(), kInt8Panel]
  std::int64_t first_input = 0;  // of the first group, where `data` is: input 0. Of fp8: of the
                                 // first block, and `data` is where input 0 is; 0 in one block
  // Of fp8 weights only:
  Fp8Layout fp8 = {};
  const float* block_scales = nullptr;  // [blocks of outputs, scale_stride], from the first blocks
  std::int64_t scale_stride = 0;

  std::int64_t stride() const { return row_stride == 0 ? n_in : row_stride; }
  // What a whole matrix of this shape and type takes, with its scales.
  std::int64_t bytes() const {
    if (dtype == DType::kI8) return int8_matrix_bytes(n_out, n_in);
    if (dtype == DType::kI4) return int4_matrix_bytes(n_out, n_in, int4);
    if (dtype == DType::kF8E4m3) return fp8_matrix_bytes(n_out, n_in, fp8);
    return n_out * n_in * static_cast<std::int64_t>(size_of(dtype));
  }
  // Outputs [extent) of all.
  WeightView outputs(Extent extent) const {
    WeightView out = *this;
    out.n_out = extent.size();
    out.row_stride = stride();
    if (!is_integer(dtype)) {
      out.data = at(extent.begin * stride());
      if (dtype == DType::kF8E4m3) {
        const std::int64_t block = (first_lane + extent.begin) / fp8.block_out;
        out.block_scales = block_scales + block * scale_stride;
        out.first_lane = first_lane + extent.begin - block * fp8.block_out;
      }
      return out;
    }
    const std::int64_t lane = first_lane + extent.begin;
    const std::int64_t panels_begin = lane / kInt8Panel * kInt8Panel;
    out.data = at(panels_begin * stride());
    out.first_lane = lane - panels_begin;
    if (dtype == DType::kI8) {
      out.scales = scales + panels_begin;
    } else {
      out.group_scales = group_scales + panels_begin * (stride() / int4.group);
    }
    return out;
  }
  // Inputs [extent) of every output. Of integers whole groups of activations: `extent` begins and
  // ends at multiples of `group`, or ends with the inputs.
  WeightView inputs(Extent extent) const {
    WeightView out = *this;
    out.n_in = extent.size();
    out.row_stride = stride();
    if (!is_integer(dtype)) {
      out.data = at(extent.begin);
      if (dtype == DType::kF8E4m3) {
        const std::int64_t begin = first_input + extent.begin;
        const std::int64_t block = begin / fp8.block_in;
        const bool within_block = (first_input + extent.end - 1) / fp8.block_in == block;
        out.block_scales = block_scales + block;
        out.first_input = within_block ? 0 : begin - block * fp8.block_in;
      }
      return out;
    }
    require(extent.begin % group == 0 && (extent.end % group == 0 || extent.end == n_in),
            "a slice of the inputs of integer weights cuts a group of activations");
    if (dtype == DType::kI8) {
      out.data = at(extent.begin * kInt8Panel);
      return out;
    }
    const std::int64_t begin = first_input + extent.begin;
    const std::int64_t scale = begin / int4.group;
    out.data = at(scale * int4.group * kInt8Panel);
    out.group_scales = group_scales + scale * kInt8Panel;
    out.first_input = begin - scale * int4.group;
    return out;
  }
  const void* at(std::int64_t element) const {
    const std::int64_t byte =
        dtype == DType::kI4 ? element / 2 : element * static_cast<std::int64_t>(size_of(dtype));
    return static_cast<const std::byte*>(data) + byte;
  }
};

}  // namespace longhaul
