#include "tests/bench/gpu/gpu_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace longhaul::bench {
namespace {

constexpr int kTimings = 7;

}  // namespace

double milliseconds_of(cuda::Stream& stream, const std::function<void()>& call) {
  call();  // first uses load modules and choose algorithms
  stream.synchronise();
  cuda::Event begin;
  cuda::Event end;
  const auto time = [&](int n_calls) {
    begin.record(stream);
    for (int i = 0; i < n_calls; ++i) call();
    end.record(stream);
    end.wait();
    return end.milliseconds_since(begin) / n_calls;
  };
  const int n_calls = std::clamp(static_cast<int>(3.0 / std::max(time(1), 1e-3)), 1, 200);
  std::vector<double> times;
  for (int i = 0; i < kTimings; ++i) times.push_back(time(n_calls));
  std::ranges::sort(times);
  return times[kTimings / 2];
}

double GpuReport::bytes(const std::string& name, double n_bytes,
                        const std::function<void()>& call) {
  const double ms = milliseconds_of(stream_, call);
  const double rate = n_bytes / ms * 1e3;
  fmt::print("{:<52} {:>9.3f} ms  {:>8.0f} GB/s     {:>4.0f} % of read\n", name, ms, rate / 1e9,
             100 * rate / rates_.read_bytes);
  std::fflush(stdout);
  return ms;
}

double GpuReport::flops(const std::string& name, double n_flops,
                        const std::function<void()>& call) {
  const double ms = milliseconds_of(stream_, call);
  const double rate = n_flops / ms * 1e3;
  fmt::print("{:<52} {:>9.3f} ms  {:>8.1f} TFLOP/s  {:>4.0f} % of cuBLAS bf16\n", name, ms,
             rate / 1e12, 100 * rate / rates_.pair_flops);
  std::fflush(stdout);
  return ms;
}

}  // namespace longhaul::bench
