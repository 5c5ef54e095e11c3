// A matrix of a model folder's files whose type is F8_E4M3, with the scales that lie in a tensor of
// their own (model/hf_quantised.h has the forms).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "model/model_folder.h"

namespace longhaul {

// Its codes stay in the mapped file: lives no longer than `folder` or a copy of it. Move-only, so
// that views stay valid.
class Fp8Tensor {
 public:
  // `name` [n_out, n_in] and name_scale_inv or name_scale, of any floating type. Reads all codes.
  // Throws kCorruptData, naming folder and tensor: scales that are missing, of another shape,
  // negative or no numbers, codes that are no numbers.
  Fp8Tensor(const ModelFolder& folder, const std::string& name, std::int64_t n_out,
            std::int64_t n_in);
  Fp8Tensor(Fp8Tensor&&) noexcept = default;
  Fp8Tensor& operator=(Fp8Tensor&&) noexcept = default;

  WeightView view() const;

 private:
  std::span<const std::uint8_t> codes_;
  std::vector<float> scales_;
  std::int64_t n_out_;
  std::int64_t n_in_;
  Fp8Layout layout_;
};

}  // namespace longhaul
