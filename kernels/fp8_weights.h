// Matrices of fp8 weights: E4M3 codes (base/dtype.h) as model files have them, [n_out, n_in], rows
// contiguous, with a scale in f32 for each block of outputs and inputs (base/fp8_format.h); and how
// they are made from others. What enters a product stays in floats.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace longhaul {

// A view of codes and scales that lie elsewhere, [n_out, n_in] and [blocks of outputs, blocks of
// inputs]. The codes have no NaN (first_nan), the scales are finite.
WeightView fp8_view(const std::uint8_t* codes, std::int64_t n_out, std::int64_t n_in,
                    const float* scales, const Fp8Layout& layout = {});

// The place of the first code that is NaN, none if all are numbers. Kernels read such a code as
// 480. Reads all codes, on all threads.
std::optional<std::int64_t> first_nan(std::span<const std::uint8_t> codes);

// Owns a matrix. Move-only.
class Fp8Matrix {
 public:
  // Of each block the scale that maps its largest weight to the largest code, 448, and every weight
  // to the nearest code. read_row writes the n_in weights of an output; it is called from several
  // threads. Throws kCorruptData for a weight that is infinite or NaN.
  using ReadRow = std::function<void(std::int64_t output, float* weights)>;
  static Fp8Matrix quantise(std::int64_t n_out, std::int64_t n_in, const ReadRow& read_row,
                            const Fp8Layout& layout = {});

  WeightView view() const;

 private:
  Fp8Matrix(std::int64_t n_out, std::int64_t n_in, const Fp8Layout& layout);
  void quantise_block(std::int64_t block, const ReadRow& read_row, std::vector<float>& weights);

  std::int64_t n_out_;
  std::int64_t n_in_;
  Fp8Layout layout_;
  Tensor<std::uint8_t, 1> codes_;
  Tensor<float, 2> scales_;  // [blocks of outputs, blocks of inputs]
};

// Rounds a row of what enters a product as Fp8Inputs::kQuantised says; `first` is x[0]'s
// place in its block. The scale of a group is its largest magnitude / 448, and value = code scale;
// a group with a NaN or an infinity comes back as NaN. (DeepSeek-V3's own kernel, act_quant, has 0
// / 0 where a group is all zeros; here these stay.)
void round_fp8_inputs(std::int64_t first, std::span<float> x);

// A weight of an fp8 matrix, for conversions, tests and tools: far too slow for products.
float fp8_weight(const WeightView& weight, std::int64_t output, std::int64_t input);

}  // namespace longhaul
