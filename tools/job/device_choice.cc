#include "tools/job/device_choice.h"

#include <fmt/format.h>

#include "base/device/device_cuda.h"
#include "base/error.h"
#include "kernels/cpu/isa.h"

namespace longhaul {

DeviceId chosen_device(DeviceChoice choice, int local_rank) {
  if (choice == DeviceChoice::kCpu) return {};
  const int n_gpus = cuda::device_count();
  if (n_gpus > 0) return {Device::kCuda, local_rank % n_gpus};
  if (choice == DeviceChoice::kAuto) return {};
  throw Error(ErrorCode::kUnsupported,
              fmt::format("--device cuda: there is no GPU to use ({}); --device cpu works "
                          "everywhere",
                          cuda::why_no_device()));
}

std::string describe(const DeviceId& device) {
  if (device.kind == Device::kCpu) return fmt::format("{} kernels", name_of(active_isa()));
  return fmt::format("{}, {}", name_of(device), cuda::device_info(device.ordinal).name);
}

}  // namespace longhaul
