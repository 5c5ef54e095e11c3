// What this machine's CPUs attain at best at this moment, measured in the process that is judged,
// with the same threads and instruction set: the yardstick of every figure. Machines slow down and
// speed up (neighbours, heat), so benchmarks probe right before and right after what they measure
// and take the better.
#pragma once
#include <cstdint>

#include "base/host_memory.h"
#include "base/rates.h"
#include "base/work_clock.h"

namespace longhaul {

// Used by one thread, whose kernel_threads() at construction the probes take.
class CpuProbes {
 public:
  // Of the memory that is read: far more than the caches hold. kThreadCpu counts one thread's time.
  static constexpr std::int64_t kReadBytes = std::int64_t{1} << 29;
  explicit CpuProbes(WorkClock clock, std::int64_t read_bytes = kReadBytes);

  // The best of a few runs of each loop; about a fifth of a second. Products of bf16 and of int8
  // are those of the active instruction set: TDPBF16PS and TDPBSUD with AMX.
  Rates measure() const;

 private:
  float* memory() const { return reinterpret_cast<float*>(memory_.data()); }

  WorkClock clock_;
  std::int64_t n_threads_;
  std::int64_t n_floats_;
  HostMemory memory_;  // as weights and caches lie in
};

}  // namespace longhaul
