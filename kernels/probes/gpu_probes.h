// What a GPU attains at best at this moment, as CpuProbes (cpu_probes.h) does for CPUs: the
// yardstick of every figure.
#pragma once
#include <cstdint>

#include "base/device/device_cuda.h"
#include "base/rates.h"

namespace longhaul {

// Of the product whose rate is measured. As large as it takes for the rounding of its inputs, which
// linear() does before it calls cuBLAS, to be a hundredth of it.
struct GpuProbeSizes {
  std::int64_t n_tokens = 4096;
  std::int64_t n_in = 4096;
  std::int64_t n_out = 65536;
};

// Used by the stream's thread; the stream must outlive it.
class GpuProbes {
 public:
  // Takes 1.6 GiB of the GPU's memory.
  explicit GpuProbes(cuda::Stream& stream, const GpuProbeSizes& sizes = {});

  // The best of a few runs; a few hundredths of a second. Products of bf16 are cuBLAS's. Those of
  // int8 are taken for twice as fast, as the datasheets have it since compute capability 8.0; those
  // of floats are held to the rate of bf16. Blocks until the stream's work is done.
  Rates measure() const;

 private:
  cuda::Stream& stream_;
  GpuProbeSizes sizes_;
  cuda::Buffer memory_;  // weight, x and out
};

}  // namespace longhaul
