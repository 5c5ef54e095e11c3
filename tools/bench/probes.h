// What this machine attains at best at this moment, measured in the benchmark's own process with
// the same threads and instruction set: the yardstick of every figure. Machines slow down and speed
// up (neighbours, heat), so benchmarks probe right before and right after what they measure and
// take the better.
#pragma once
#include <cstdint>
#include <memory>

#include "tools/bench/bench_clock.h"
#include "tools/bench/bound.h"

namespace longhaul::bench {

// Used by one thread, whose kernel_threads() at construction the probes take.
class Probes {
 public:
  // Takes 512 MiB, which no cache holds.
  explicit Probes(BenchClock clock);

  // The best of a few runs of each loop; about a fifth of a second. Products of bf16 and of int8
  // are those of the active instruction set: TDPBF16PS and TDPBSUD with AMX.
  Rates measure() const;

 private:
  BenchClock clock_;
  std::int64_t n_threads_;
  std::unique_ptr<float[]> memory_;
};

}  // namespace longhaul::bench
