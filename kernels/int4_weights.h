// Matrices of 4-bit weights with a scale for each output and group of inputs (weight = scale *
// integer of [-8, 7], as llama.cpp's Q4_0 has them), and how they are made from others.
//
// 16 outputs are a panel, 8 inputs a line: 64 bytes, a 32-bit word for each output. Byte b of a
// word holds the codes of inputs b (low half) and 4 + b (high half), so that each half of a line is
// a step of VPDPBUSD. A code is its integer plus 8. Inputs are filled up to whole groups, outputs
// to whole panels, with zeros. 20 outputs of 40 inputs in groups of 32 are two panels of eight
// lines, of which the last three are filled up:
//
//   panel 0  line 0: output 0, inputs 0 4 | 1 5 | 2 6 | 3 7 || output 1 ... || ... output 15
//            line 1: output 0, inputs 8 12 | ...
//            ...
//   panel 1  line 0: output 16 ...
//
// Scales lie apart: [panels, groups, 16 outputs], in f16. Activations are quantised when they are
// multiplied, in the groups of int8 weights (kernels/int8_weights.h).
#pragma once
#include <cstdint>

#include "base/int4_format.h"
#include "kernels/int8_weights.h"
#include "kernels/tensor.h"

namespace longhaul {

// Owns a matrix. Move-only.
class Int4Matrix {
 public:
  // Of each group of inputs the scale, among those that map its largest weight to about an end of
  // the range, whose codes leave the smallest sum of squared errors. shape.group, that of
  // activations, is a multiple of kInt4Line. read_row writes the n_in weights of an output; it is
  // called from several threads. Throws kCorruptData for a weight that is infinite or NaN, or too
  // large for a scale in f16.
  using ReadRow = Int8Matrix::ReadRow;
  static Int4Matrix quantise(const Int8Shape& shape, const ReadRow& read_row,
                             const Int4Layout& layout = {});

  // All weights the same one, as f16 has it: quickly made, for measuring.
  static Int4Matrix filled(const Int8Shape& shape, float weight);

  WeightView view() const;
  std::int64_t bytes() const;  // of codes and scales: int4_matrix_bytes

 private:
  Int4Matrix(const Int8Shape& shape, const Int4Layout& layout);
  void quantise_panel(std::int64_t panel, const ReadRow& read_row);
  std::int64_t n_groups() const { return ceil_div(shape_.n_in, layout_.group); }

  Int8Shape shape_;
  Int4Layout layout_;
  Tensor<std::uint8_t, 1> codes_;
  Tensor<std::uint16_t, 1> scales_;
};

// A weight of an int4 matrix, for tests and tools: far too slow for products.
float int4_weight(const WeightView& weight, std::int64_t output, std::int64_t input);

}  // namespace longhaul
