// What the views of a worker's weights look at: mapped files, matrices that were made of them, and
// their copies on a GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/device/device_memory.h"
#include "base/host_memory.h"
#include "kernels/fp8_weights.h"
#include "kernels/int4_weights.h"
#include "kernels/int8_weights.h"
#include "kernels/tensor.h"
#include "model/model_folder.h"
#include "worker/fp8_tensor.h"

namespace longhaul {

struct WeightMemory {
  // A matrix of this type made from rows of floats.
  WeightView hold(DType dtype, const Int8Shape& shape, const Int8Matrix::ReadRow& read_row);
  // The same bytes in memory of this process.
  const std::byte* copy(std::span<const std::byte> bytes);

  // Where the kernels are to find it: on a GPU its copy there, and what was made of it here goes.
  // Throws kOutOfMemory, saying how much is there.
  WeightView place(StreamRef stream, const WeightView& weight);
  // Those that the same rows are multiplied by: on a GPU matrices of floats are joined.
  std::vector<WeightView> place(StreamRef stream, std::vector<WeightView> weights);
  std::span<const float> place(StreamRef stream, std::vector<float> values);

  std::optional<ModelFolder> folder;  // keeps the files mapped
  std::vector<Int8Matrix> int8s;
  std::vector<Fp8Tensor> fp8_files;  // whose codes lie in the folder's files, or in copies

 private:
  template <typename Upload>
  void keep(const Upload& upload, std::int64_t n_bytes);

  std::vector<Tensor<float, 2>> floats_;
  std::vector<Tensor<BFloat16, 2>> bf16s_;
  std::vector<Int4Matrix> int4s_;
  std::vector<Fp8Matrix> fp8s_;
  std::vector<HostMemory> copies_;
  std::vector<std::vector<float>> vectors_;
  std::vector<cuda::Buffer> on_gpu_;
};

}  // namespace longhaul
