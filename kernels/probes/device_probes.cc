#include "kernels/probes/device_probes.h"

#include <memory>

#include "kernels/probes/gpu_probes.h"

namespace longhaul {
namespace {

struct ProbesWithStream {
  explicit ProbesWithStream(int gpu) : stream(gpu), probes(stream) {}
  cuda::Stream stream;
  GpuProbes probes;
};

}  // namespace

std::function<Rates()> make_probes(const DeviceProbeArgs& args) {
  if (args.device.kind == Device::kCpu) {
    return [probes = std::make_shared<CpuProbes>(args.clock, args.cpu_read_bytes)] {
      return probes->measure();
    };
  }
  return [gpu = std::make_shared<ProbesWithStream>(args.device.ordinal)] {
    return gpu->probes.measure();
  };
}

}  // namespace longhaul
