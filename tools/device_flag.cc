#include "tools/device_flag.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "kernels/isa.h"

namespace longhaul {

void add_device_flag(CLI::App& app, std::string& device, const std::string& group) {
  app.add_option(
         "--device", device,
         "What computes: cpu; cuda, a GPU for each rank of a host in turn; auto: GPUs where "
         "there are any")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str()
      ->group(group);
}

DeviceId chosen_device(const std::string& device, int local_rank) {
  if (device == "cpu") return {};
  const int n_gpus = cuda::device_count();
  if (n_gpus > 0) return {Device::kCuda, local_rank % n_gpus};
  if (device == "auto") return {};
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
