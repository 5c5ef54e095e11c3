#include "tests/multirank/support/fake_gpus.h"

#include "base/device/step_graph.h"
#include "tests/cuda_on_host/streams.h"

namespace longhaul::test {
namespace {

struct Sum {
  float* sum;
  const float* rows;  // [n_rows, n]
  std::int64_t n_rows;
  std::int64_t n;
  bool operator==(const Sum&) const = default;
  void queue(void* stream) const {
    cuda_on_host::queue(static_cast<cudaStream_t>(stream), nullptr, [*this] {
      const cuda_on_host::DeviceMemoryAccess access;
      for (std::int64_t i = 0; i < n; ++i) {
        float total = rows[i];
        for (std::int64_t r = 1; r < n_rows; ++r) total += rows[r * n + i];
        sum[i] = total;
      }
    });
  }
};

}  // namespace

void set_fake_gpus(int count) { cuda_on_host::set_device_count(count); }

void set_fake_gpus_patience(std::chrono::milliseconds limit) {
  cuda_on_host::set_stuck_after(limit);
}

SumRows sum_rows_on_fake_gpu() {
  return
      [](cuda::Stream& stream, float* sum, const float* rows, std::int64_t n_rows, std::int64_t n) {
        cuda::queue_work(stream, Sum{sum, rows, n_rows, n});
      };
}

}  // namespace longhaul::test
