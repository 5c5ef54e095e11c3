#include "tools/bench/device_probes.h"

#include <memory>

#include "tools/bench/gpu_probes.h"
#include "tools/bench/probes.h"

namespace longhaul::bench {
namespace {

struct ProbesWithStream {
  explicit ProbesWithStream(int gpu) : stream(gpu), probes(stream) {}
  cuda::Stream stream;
  GpuProbes probes;
};

}  // namespace

std::function<Rates()> make_probes(const DeviceId& device, BenchClock clock) {
  if (device.kind == Device::kCpu) {
    return [probes = std::make_shared<Probes>(clock)] { return probes->measure(); };
  }
  return
      [gpu = std::make_shared<ProbesWithStream>(device.ordinal)] { return gpu->probes.measure(); };
}

}  // namespace longhaul::bench
