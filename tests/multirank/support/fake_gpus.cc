#include "tests/multirank/support/fake_gpus.h"

#include "tests/cuda_on_host/streams.h"

namespace longhaul::test {

void set_fake_gpus(int count) { cuda_on_host::set_device_count(count); }

SumRows sum_rows_on_fake_gpu() {
  return
      [](cuda::Stream& stream, float* sum, const float* rows, std::int64_t n_rows, std::int64_t n) {
        cuda_on_host::queue(static_cast<cudaStream_t>(stream.native()), nullptr, [=] {
          const cuda_on_host::DeviceMemoryAccess access;
          for (std::int64_t i = 0; i < n; ++i) {
            float total = rows[i];
            for (std::int64_t r = 1; r < n_rows; ++r) total += rows[r * n + i];
            sum[i] = total;
          }
        });
      };
}

}  // namespace longhaul::test
