// A weight on the device of a stream, for tests of operators there.
#pragma once
#include "kernels/cuda/upload_weight.h"
#include "kernels/tensor.h"

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

}  // namespace longhaul::test
