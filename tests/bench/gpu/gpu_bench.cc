// Speed on a GPU, each figure beside what the chip attains in the same run: bytes beside a plain
// read, products beside cuBLAS's. On random data (zeros draw less power and run faster).
//   gpu_bench [operators] [model] [--json FILE]   both unless named; FILE gets a JSON object for
//   each
//                                                 figure of an operator, a line each
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "kernels/probes/gpu_probes.h"
#include "tests/bench/gpu/gpu_report.h"
#include "tests/bench/gpu/model_bench.h"

namespace longhaul::bench {
namespace {

void run(const std::vector<std::string_view>& parts, const std::filesystem::path& figures) {
  const auto wanted = [&](std::string_view part) {
    return parts.empty() || std::ranges::find(parts, part) != parts.end();
  };
  cuda::Stream stream(0);
  const cuda::DeviceInfo& device = stream.device();
  const Rates rates = GpuProbes(stream).measure();
  fmt::print(
      "{}, compute capability {}.{}, {} multiprocessors, {:.1f} GB\n"
      "attainable: cuBLAS bf16 {:.1f} TFLOP/s (int8 is taken for twice that), reads {:.0f} GB/s\n",
      device.name, device.major, device.minor, device.n_multiprocessors,
      static_cast<double>(device.memory_bytes) / 1e9, rates.pair_flops / 1e12,
      rates.read_bytes / 1e9);
  GpuReport report(stream, rates, figures);
  if (wanted("operators")) bench_operators(report);
  if (wanted("model")) bench_model(rates, large_model_case());
}

}  // namespace
}  // namespace longhaul::bench

int main(int n_arguments, char** arguments) {
  if (longhaul::cuda::device_count() == 0) {
    fmt::print("gpu_bench: no GPU: {}\n", longhaul::cuda::why_no_device());
    return 1;
  }
  std::vector<std::string_view> parts(arguments + 1, arguments + n_arguments);
  std::filesystem::path figures;
  if (const auto at = std::ranges::find(parts, "--json"); at != parts.end()) {
    if (at + 1 == parts.end()) {
      fmt::print("gpu_bench: --json needs a file\n");
      return 2;
    }
    figures = *(at + 1);
    parts.erase(at, at + 2);
  }
  longhaul::bench::run(parts, figures);
}
