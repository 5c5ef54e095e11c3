#include "tests/multirank/support/fake_gpus.h"

#include "tests/streams_on_host/stream_queues.h"

namespace longhaul::test {

void set_fake_gpus(int count) { streams_on_host::set_device_count(count); }

SumRows sum_rows_on_fake_gpu() {
  return
      [](cuda::Stream& stream, float* sum, const float* rows, std::int64_t n_rows, std::int64_t n) {
        streams_on_host::enqueue(static_cast<cudaStream_t>(stream.native()), [=] {
          auto* to = reinterpret_cast<float*>(streams_on_host::reachable(sum));
          const auto* from = reinterpret_cast<const float*>(streams_on_host::reachable(rows));
          for (std::int64_t i = 0; i < n; ++i) {
            float total = from[i];
            for (std::int64_t r = 1; r < n_rows; ++r) total += from[r * n + i];
            to[i] = total;
          }
          return true;
        });
      };
}

}  // namespace longhaul::test
