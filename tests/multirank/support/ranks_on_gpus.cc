#include "tests/multirank/support/ranks_on_gpus.h"

#include <barrier>
#include <cstdlib>
#include <string_view>

#include "cluster/comm/gpu_communicator.h"
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/device_spans.h"
#include "tests/multirank/support/fake_gpus.h"
#include "tests/multirank/support/ranks.h"

namespace longhaul::test {
namespace {

thread_local cuda::Stream* stream_of_this_thread = nullptr;

bool is_asked_for(const char* variable, std::string_view value) {
  const char* text = std::getenv(variable);
  return text != nullptr && text == value;
}
bool spans_are_on_gpus() { return is_asked_for("LONGHAUL_TEST_SPANS", "device"); }

// Small, so that most messages take several.
[[maybe_unused]] constexpr std::size_t kTestSlotBytes = 4096;

// With a made-up NCCL (tests/fake_nccl) each rank has a GPU of its own; without, all share one.
#ifdef LONGHAUL_FAKE_NCCL
int gpu_of(int rank) {
  set_fake_gpus(64);
  return rank;
}
#else
int gpu_of(int) { return 0; }
#endif

// `all_are_ready` is not the communicators' own barrier: a body may abort them at once.
void run_rank(Communicator& host, const RankBody& body, std::barrier<>& all_are_ready) {
  cuda::Stream stream(gpu_of(host.rank()));
  stream_of_this_thread = &stream;
  const auto gpu = make_gpu_communicator(host, gpu_communicator_config(stream));
  all_are_ready.arrive_and_wait();
  if (!spans_are_on_gpus()) return body(*gpu);
  DeviceSpans device(*gpu, stream);
  body(device);
}

}  // namespace

cuda::Stream& stream_of_this_rank() { return *stream_of_this_thread; }

GpuCommunicatorConfig gpu_communicator_config(cuda::Stream& stream) {
  GpuCommunicatorConfig config;
  config.stream = &stream;
#ifdef LONGHAUL_FAKE_NCCL
  config.transport = is_asked_for("LONGHAUL_TEST_TRANSFERS", "copy_engines")
                         ? GpuTransport::kCopyEnginesWherePossible
                         : GpuTransport::kNcclWherePossible;
  config.nccl_library = LONGHAUL_FAKE_NCCL;
  config.sum_rows = sum_rows_on_fake_gpu();
  config.copy_engines.slot_bytes = kTestSlotBytes;
#endif
  return config;
}

std::vector<int> rank_counts() { return {LONGHAUL_TEST_RANKS}; }

bool ranks_are_processes() { return false; }

void run_ranks(int n_ranks, const RankBody& body, CommunicatorConfig config) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  std::barrier<> ready(n_ranks);
  try {
    run_in_process(
        n_ranks, [&](Communicator& host) { run_rank(host, body, ready); }, config);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the first rank to fail threw: " << error.what();
  }
}

}  // namespace longhaul::test
