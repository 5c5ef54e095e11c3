// What GPU benchmarks time with, and the lines that they print: achieved beside attainable.
#pragma once
#include <functional>
#include <string>

#include "base/device/device_cuda.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

// Milliseconds of one call: the median of several timings by events, of as many calls as take a few
// of them.
double milliseconds_of(cuda::Stream& stream, const std::function<void()>& call);

// Prints a line for each piece of work, with its share of what the chip attains: `rates`, measured
// in the same run.
class GpuReport {
 public:
  GpuReport(cuda::Stream& stream, const Rates& rates) : stream_(stream), rates_(rates) {}

  // Both time `call`, print its rate, and give its milliseconds.
  double bytes(const std::string& name, double n_bytes, const std::function<void()>& call);
  double flops(const std::string& name, double n_flops, const std::function<void()>& call);

  cuda::Stream& stream() { return stream_; }
  const Rates& rates() const { return rates_; }

 private:
  cuda::Stream& stream_;
  Rates rates_;
};

// Parts of gpu_bench.
void bench_operators(GpuReport& report);

}  // namespace longhaul::bench
