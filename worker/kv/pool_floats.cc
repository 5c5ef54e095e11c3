#include "worker/kv/pool_floats.h"

#include "base/ids.h"

namespace longhaul {

PoolFloats::PoolFloats(std::int64_t n, TableMemory& memory, StreamRef stream) {
  constexpr auto kOfEntry = static_cast<std::int64_t>(sizeof(TableMemory::Entry) / sizeof(float));
  if (stream.device() == Device::kCpu) {
    on_host_ = Tensor<float, 1>({n});
  } else {
    on_gpu_ = memory.take(ceil_div(n, kOfEntry));
  }
}

float* PoolFloats::data() const {
  return on_gpu_ != nullptr ? reinterpret_cast<float*>(on_gpu_->entries())
                            : const_cast<float*>(on_host_.data());
}

}  // namespace longhaul
