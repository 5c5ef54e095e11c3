// What GPU benchmarks time with, and the lines that they print: achieved beside attainable.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "base/device/device_cuda.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

// How calls reach the GPU.
enum class Queueing {
  kOneByOne,  // each kernel by itself, as in prefill
  kReplay,    // as steps of decode are: noted, and queued as a graph where the one before was the
              // same
};

// Of one call.
struct CallTimes {
  double milliseconds = 0;       // between events on the GPU, calls one after the other
  double host_microseconds = 0;  // that the host takes to queue it, while the GPU has no other work
};
// Medians of several timings, of as many calls as take a few milliseconds.
CallTimes times_of(cuda::Stream& stream, Queueing queueing, const std::function<void()>& call);

// Prints a line for each piece of work, with its share of what the chip attains: `rates`, measured
// in the same run. And writes it to a file, if one is given: one JSON object a line.
class GpuReport {
 public:
  // `figures`: of JSON lines, appended to; empty: none.
  GpuReport(cuda::Stream& stream, const Rates& rates, std::filesystem::path figures = {})
      : stream_(stream), rates_(rates), figures_(std::move(figures)) {}

  // All time `call`, print its rate, and give its milliseconds.
  double bytes(const std::string& name, double n_bytes, const std::function<void()>& call,
               Queueing queueing = Queueing::kOneByOne);
  double flops(const std::string& name, double n_flops, const std::function<void()>& call);
  // Beside nothing that was measured: transfers.
  double rate(const std::string& name, double n_bytes, const std::function<void()>& call);

  cuda::Stream& stream() { return stream_; }
  const Rates& rates() const { return rates_; }

 private:
  struct Figure {
    std::string name;
    CallTimes times;
    double rate = 0;        // a second
    std::string unit;       // "GB/s", "TFLOP/s": of 1e9 or 1e12
    double attainable = 0;  // 0: not known
    std::string beside;     // what that is
  };
  void note(const Figure& figure) const;

  cuda::Stream& stream_;
  Rates rates_;
  std::filesystem::path figures_;
};

// Parts of gpu_bench.
void bench_operators(GpuReport& report);
void bench_small_operators(GpuReport& report);  // of a step's rows, and copies

}  // namespace longhaul::bench
