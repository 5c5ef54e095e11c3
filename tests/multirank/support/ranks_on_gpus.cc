#include "tests/multirank/support/ranks_on_gpus.h"

#include <cstdlib>
#include <memory>
#include <string_view>

#include "cluster/comm/gpu_communicator.h"
#include "cluster/comm/in_process.h"
#include "tests/multirank/support/device_spans.h"
#include "tests/multirank/support/ranks.h"

namespace longhaul::test {
namespace {

thread_local cuda::Stream* stream_of_this_thread = nullptr;

bool spans_are_on_gpus() {
  const char* text = std::getenv("LONGHAUL_TEST_SPANS");
  return text != nullptr && std::string_view(text) == "device";
}

void run_rank(Communicator& host, const RankBody& body) {
  cuda::Stream stream(0);
  stream_of_this_thread = &stream;
  const auto gpu = make_gpu_communicator(host, {.stream = &stream});
  if (!spans_are_on_gpus()) return body(*gpu);
  DeviceSpans device(*gpu, stream);
  body(device);
}

}  // namespace

cuda::Stream& stream_of_this_rank() { return *stream_of_this_thread; }

std::vector<int> rank_counts() { return {LONGHAUL_TEST_RANKS}; }

bool ranks_are_processes() { return false; }

void run_ranks(int n_ranks, const RankBody& body, CommunicatorConfig config) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  try {
    run_in_process(
        n_ranks, [&](Communicator& host) { run_rank(host, body); }, config);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the first rank to fail threw: " << error.what();
  }
}

}  // namespace longhaul::test
