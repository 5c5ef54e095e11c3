// Matrices of int8 weights with one scale for each output (symmetric: weight = scale * integer of
// [-127, 127]), and how they are made from others.
//
// 16 outputs are a panel, 4 inputs a step; the last ones are filled up with zeros. A weight is a
// byte that holds its integer plus 128, because VPDPBUSD multiplies unsigned bytes with signed
// ones. 20 outputs of 6 inputs are two panels of two steps, 256 bytes:
//
//   panel 0  step 0: output 0 inputs 0 1 2 3 | output 1 inputs 0 1 2 3 | ... output 15 inputs 0 1 2
//   3
//            step 1: output 0 inputs 4 5 . . | ...
//   panel 1  step 0: output 16 inputs 0 1 2 3 | ... outputs 20 to 31 do not exist
//
// Activations are quantised when they are multiplied: each token's group of `group` neighbouring
// inputs to integers of [-127, 127] with a scale of its own.
#pragma once
#include <cstdint>
#include <functional>

#include "kernels/tensor.h"

namespace longhaul {

struct Int8Shape {
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  std::int64_t group = kInt8Group;  // of activations; a positive multiple of 4
};

// Owns a matrix. Move-only.
class Int8Matrix {
 public:
  // Rounds to the nearest multiple of max|w| / 127 of each output. read_row writes the n_in weights
  // of an output; it is called from several threads. Throws kCorruptData for a weight that is
  // infinite or NaN.
  using ReadRow = std::function<void(std::int64_t output, float* weights)>;
  static Int8Matrix quantise(const Int8Shape& shape, const ReadRow& read_row);
  // From integers that are there, -128 allowed, and their scales.
  using ReadIntegers = std::function<void(std::int64_t output, std::int8_t* weights)>;
  static Int8Matrix pack(const Int8Shape& shape, const ReadIntegers& read_row,
                         const std::function<float(std::int64_t output)>& scale);

  WeightView view() const;
  std::int64_t bytes() const;  // of weights and scales: int8_matrix_bytes

 private:
  explicit Int8Matrix(const Int8Shape& shape);
  Int8Shape shape_;
  Tensor<std::uint8_t, 1> panels_;
  Tensor<float, 1> scales_;
};

// A weight of an int8 matrix, for tests and tools: far too slow for products.
float int8_weight(const WeightView& weight, std::int64_t output, std::int64_t input);

}  // namespace longhaul
