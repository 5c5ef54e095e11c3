// A weight on the device of a stream, and products with it, for tests of operators there.
#pragma once
#include <span>
#include <vector>

#include "kernels/cuda/upload_weight.h"
#include "kernels/linear.h"
#include "kernels/tensor.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {

// On a GPU a copy; on a CPU the matrix itself, which must stay.
class WeightThere {
 public:
  WeightThere(StreamRef stream, const WeightView& here) : view_(here) {
    if (stream.device() == Device::kCpu) return;
    uploaded_ = upload_weight(stream.cuda_stream(), here);
    view_ = uploaded_.view;
  }
  const WeightView& view() const { return view_; }

 private:
  UploadedWeight uploaded_;
  WeightView view_;
};

// linear() into an output full of ones; `weight` is on the device, the others are not.
inline std::vector<float> product_there(StreamRef stream, std::span<const float> x,
                                        const WeightView& weight,
                                        const std::vector<float>& bias = {},
                                        LinearOutput output = LinearOutput::kOverwrite) {
  const std::int64_t n_tokens = std::ssize(x) / weight.n_in;
  const Memory<float> out(stream, n_tokens * weight.n_out, 1.0F);
  const Memory<float> x_there(stream, x);
  const Memory<float> bias_there(stream, bias);
  linear(stream, {.x = TensorView<const float, 2>(x_there.data(), {n_tokens, weight.n_in}),
                  .weight = weight,
                  .bias = bias_there.span(),
                  .out = TensorView<float, 2>(out.data(), {n_tokens, weight.n_out}),
                  .output = output});
  return out.values();
}

}  // namespace longhaul::test
