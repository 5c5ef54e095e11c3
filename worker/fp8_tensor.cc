#include "worker/fp8_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "base/error.h"
#include "kernels/fp8_weights.h"
#include "worker/tensor_floats.h"

namespace longhaul {
namespace {

[[noreturn]] void corrupt(const ModelFolder& folder, std::string_view name,
                          std::string_view reason) {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: tensor {} {}", folder.path().string(), name, reason));
}

std::string name_of_scales(const ModelFolder& folder, const std::string& name) {
  for (const std::string_view suffix : {"_scale_inv", "_scale"}) {
    if (folder.has_tensor(name + std::string(suffix))) return name + std::string(suffix);
  }
  corrupt(folder, name,
          fmt::format("is fp8, and the files hold no scales for it, {}_scale_inv or {}_scale; copy "
                      "or download the model again",
                      name, name));
}

// One scale for a matrix may have no dimensions, one for each output only one.
bool is_shape(const std::vector<std::int64_t>& shape, std::int64_t rows, std::int64_t columns) {
  if (shape == std::vector<std::int64_t>{rows, columns}) return true;
  if (columns != 1) return false;
  return shape == std::vector<std::int64_t>{rows} || (rows == 1 && shape.empty());
}

std::vector<float> read_scales(const ModelFolder& folder, const std::string& name,
                               std::int64_t rows, std::int64_t columns) {
  // Larger ones would not leave room for a code's value.
  constexpr float kLargest = 1e30F;
  const TensorBytes tensor = folder.tensor(name);
  if (!is_shape(tensor.shape, rows, columns)) {
    corrupt(folder, name,
            fmt::format("has shape [{}], the weights and config.json make it [{}, {}]",
                        fmt::join(tensor.shape, ", "), rows, columns));
  }
  if (tensor.dtype == DType::kF8E4m3 || is_integer(tensor.dtype))
    corrupt(folder, name,
            fmt::format("holds scales as {}; only floats are read", name_of(tensor.dtype)));
  std::vector<float> scales(static_cast<std::size_t>(rows * columns));
  to_floats(tensor, scales);
  for (const float scale : scales) {
    if (!(scale >= 0 && scale <= kLargest))
      corrupt(folder, name, fmt::format("has a scale of {}", scale));
  }
  return scales;
}

}  // namespace

Fp8Tensor::Fp8Tensor(const ModelFolder& folder, const std::string& name, std::int64_t n_out,
                     std::int64_t n_in)
    : n_out_(n_out), n_in_(n_in) {
  const auto& form = folder.config().fp8;
  if (!form)
    corrupt(folder, name, "is fp8, and config.json has no quantization_config that says so");
  const TensorBytes tensor = folder.tensor(name);
  codes_ = {reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()), tensor.bytes.size()};
  layout_.block_out = form->block_out == 0 ? n_out : form->block_out;
  layout_.block_in = form->block_in == 0 ? ceil_div(n_in, kFp8Chunk) * kFp8Chunk : form->block_in;
  scales_ = read_scales(folder, name_of_scales(folder, name), ceil_div(n_out, layout_.block_out),
                        ceil_div(n_in, layout_.block_in));
  if (const auto place = first_nan(codes_)) {
    corrupt(folder, name, fmt::format("holds no number at [{}, {}]", *place / n_in, *place % n_in));
  }
}

WeightView Fp8Tensor::view() const {
  return fp8_view(codes_.data(), n_out_, n_in_, scales_.data(), layout_);
}

}  // namespace longhaul
