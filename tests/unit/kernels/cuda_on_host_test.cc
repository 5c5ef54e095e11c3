// That the stand-in for a GPU (tests/cuda_on_host) sees what a chip would not forgive.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/cuda_on_host/streams.h"
#include "tests/cuda_on_host/thread_block.h"
#include "tests/cuda_on_host/warpgroup.h"

namespace longhaul::test {
namespace {

using namespace cuda_on_host;

void run_threads(unsigned n, const std::function<void()>& body) {
  run_block({1, 1}, {0, 0}, n, 4096, body);
}

std::uint64_t* barrier() { return reinterpret_cast<std::uint64_t*>(shared_memory()); }

// 64 x 64 products of ones with what shared memory holds.
struct Registers {
  float d[32] = {};
  std::uint32_t a[4] = {0x3f803f80U, 0x3f803f80U, 0x3f803f80U, 0x3f803f80U};
};
constexpr std::uint64_t kRightSide = std::uint64_t{1024 >> 4} << 16U | std::uint64_t{128 >> 4}
                                                                           << 32U;

void fill_shared_memory_with_ones() {
  const std::vector<std::uint16_t> ones(1024, 0x3f80);
  if (this_thread().thread.x == 0) std::memcpy(shared_memory(), ones.data(), 2048);
  sync_block();
}

TEST(CudaOnHost, AProductIsThereWhenItHasBeenWaitedForAndNotBefore) {
  int n_right = 0;
  run_threads(128, [&] {
    fill_shared_memory_with_ones();
    Registers r;
    fence_products();
    begin_product(r.d, 64, r.a, kRightSide, false);
    begin_product(r.d, 64, r.a, kRightSide, true);
    commit_products();
    const bool is_late = std::isnan(r.d[5]);
    finish_products(0);
    if (is_late && r.d[0] == 32.0F && r.d[31] == 32.0F) ++n_right;
  });
  EXPECT_EQ(n_right, 128);
}

TEST(CudaOnHostDeathTest, AProductNeedsAFence) {
  EXPECT_DEATH(run_threads(128,
                           [] {
                             Registers r;
                             begin_product(r.d, 64, r.a, kRightSide, false);
                           }),
               "without a fence");
  EXPECT_DEATH(run_threads(128,
                           [] {
                             fill_shared_memory_with_ones();
                             Registers r;
                             for (int i = 0; i < 2; ++i) {
                               if (i == 0) fence_products();
                               begin_product(r.d, 64, r.a, kRightSide, false);
                               commit_products();
                               finish_products(0);
                             }
                           }),
               "without a fence");
}

TEST(CudaOnHostDeathTest, AProductsOutputsMayNotBeWrittenMeanwhile) {
  EXPECT_DEATH(run_threads(128,
                           [] {
                             Registers r;
                             fence_products();
                             begin_product(r.d, 64, r.a, kRightSide, false);
                             r.d[3] = 0.0F;
                             commit_products();
                             finish_products(0);
                           }),
               "output of a product was written before the product was done");
}

TEST(CudaOnHostDeathTest, AProductsInputsMayNotBeWrittenMeanwhile) {
  EXPECT_DEATH(run_threads(128,
                           [] {
                             fill_shared_memory_with_ones();
                             Registers r;
                             fence_products();
                             begin_product(r.d, 64, r.a, kRightSide, false);
                             commit_products();
                             r.a[2] = 0;
                             finish_products(0);
                           }),
               "input of a product was written before the product was done");
}

TEST(CudaOnHost, WaitingForAllGroupsButOneLeavesTheLastUnderWay) {
  int n_right = 0;
  run_threads(128, [&] {
    fill_shared_memory_with_ones();
    Registers first;
    Registers last;
    fence_products();
    begin_product(first.d, 64, first.a, kRightSide, false);
    commit_products();
    begin_product(last.d, 64, last.a, kRightSide, false);
    commit_products();
    finish_products(1);
    const bool is_late = first.d[7] == 16.0F && std::isnan(last.d[7]);
    finish_products(0);
    if (is_late && first.d[7] == 16.0F && last.d[7] == 16.0F) ++n_right;
  });
  EXPECT_EQ(n_right, 128);
}

TEST(CudaOnHost, AProductThatIsInNoGroupIsNotWaitedFor) {
  int n_late = 0;
  run_threads(128, [&] {
    fill_shared_memory_with_ones();
    Registers r;
    fence_products();
    begin_product(r.d, 64, r.a, kRightSide, false);
    finish_products(0);
    if (std::isnan(r.d[0])) ++n_late;
  });
  EXPECT_EQ(n_late, 128);
}

// Two warps take turns: who only arrives goes on, who waits does so until the other has come.
TEST(CudaOnHost, WarpsTakeTurnsAtBarriersWithNumbers) {
  std::vector<unsigned> order;
  run_threads(64, [&] {
    const unsigned warp = this_thread().thread.x / 32;
    if (warp == 1) arrive_at_number(1, 64);
    for (int i = 0; i < 3; ++i) {
      wait_at_number(static_cast<int>(1 + warp), 64);
      if (this_thread().thread.x % 32 == 0) order.push_back(warp);
      arrive_at_number(static_cast<int>(2 - warp), 64);
    }
    if (warp == 0) wait_at_number(1, 64);
  });
  EXPECT_EQ(order, (std::vector<unsigned>{0, 1, 0, 1, 0, 1}));
}

TEST(CudaOnHostDeathTest, BarriersWithNumbersThatDoNotMatchAreSeen) {
  EXPECT_DEATH(run_threads(64,
                           [] {
                             if (this_thread().thread.x < 32) wait_at_number(1, 64);
                           }),
               "wait at different places");
  EXPECT_DEATH(run_threads(64, [] { arrive_at_number(3, 96); }), "that nobody waited for");
  EXPECT_DEATH(run_threads(64, [] { arrive_at_number(3, this_thread().thread.x < 32 ? 96 : 64); }),
               "different numbers");
}

TEST(CudaOnHost, ABulkCopyComesWhenNobodyCanGoOn) {
  alignas(16) const std::byte from[64] = {std::byte{7}};
  std::byte before{};
  std::byte after{};
  run_threads(32, [&] {
    std::byte* to = shared_memory() + 1024;
    if (this_thread().thread.x == 0) init_mbarrier(barrier(), 1);
    sync_block();
    if (this_thread().thread.x == 0) {
      arrive_at(barrier(), 64);
      copy_bulk(to, from, 64, barrier());
      before = *to;
    }
    wait_at(barrier(), 0);
    after = *to;
  });
  EXPECT_EQ(before, std::byte{0xff});
  EXPECT_EQ(after, std::byte{7});
}

TEST(CudaOnHostDeathTest, WaitingForWhatNeverComesIsSeen) {
  EXPECT_DEATH(run_threads(32,
                           [] {
                             if (this_thread().thread.x == 0) init_mbarrier(barrier(), 33);
                             sync_block();
                             arrive_at(barrier(), 0);
                             wait_at(barrier(), 0);
                           }),
               "wait at different places");
  EXPECT_DEATH(run_threads(32,
                           [] {
                             if (this_thread().thread.x == 0) init_mbarrier(barrier(), 31);
                             sync_block();
                             arrive_at(barrier(), 16);
                           }),
               "more arrivals than a barrier awaits");
}

TEST(CudaOnHostDeathTest, ACopyThatNobodyWaitsForIsSeen) {
  alignas(16) static const std::byte from[64] = {};
  EXPECT_DEATH(run_threads(32,
                           [] {
                             if (this_thread().thread.x != 0) return;
                             init_mbarrier(barrier(), 1);
                             arrive_at(barrier(), 64);
                             copy_bulk(shared_memory() + 1024, from, 64, barrier());
                           }),
               "nobody waited for");
}

// --- Streams ------------------------------------------------------------------------------------

TEST(CudaOnHost, WorkIsDoneWhenSomebodyWaitsForItAndNotBefore) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  int n_done = 0;
  for (int i = 0; i < 3; ++i) queue(stream, nullptr, [&] { ++n_done; });
  EXPECT_EQ(n_done, 0);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(n_done, 1);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(n_done, 3);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  cudaStreamDestroy(stream);
}

// Also where one stream waits for another, whichever of the two is looked at first.
TEST(CudaOnHost, MemoryIsFreedAfterAllThatWasQueued) {
  cudaStream_t streams[2] = {};
  for (cudaStream_t& stream : streams) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEvent_t event = nullptr;
  cudaEventCreate(&event);
  for (const int first : {0, 1}) {
    void* there = nullptr;
    cudaMalloc(&there, 1);
    int n_before = 0;
    int n_seen_behind = 0;
    for (int i = 0; i < 3; ++i) queue(streams[first], nullptr, [&] { ++n_before; });
    cudaEventRecord(event, streams[first]);
    cudaStreamWaitEvent(streams[1 - first], event, 0);
    queue(streams[1 - first], nullptr, [&] { n_seen_behind = n_before; });
    cudaFree(there);
    EXPECT_EQ(n_seen_behind, 3);
  }
  cudaEventDestroy(event);
  for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

// What goes from pinned memory must stay there until the copy is made; other memory need not.
TEST(CudaOnHost, PinnedMemoryIsReadLateAndOtherMemoryAtOnce) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  void* there = nullptr;
  void* pinned = nullptr;
  cudaMalloc(&there, 2 * sizeof(int));
  cudaMallocHost(&pinned, sizeof(int));
  auto& from_pinned = *static_cast<int*>(pinned);
  int from_other = from_pinned = 1;
  cudaMemcpyAsync(there, &from_pinned, sizeof(int), cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(static_cast<int*>(there) + 1, &from_other, sizeof(int), cudaMemcpyHostToDevice,
                  stream);
  from_other = from_pinned = 2;
  int got[2] = {};
  cudaMemcpyAsync(got, there, sizeof got, cudaMemcpyDeviceToHost, stream);  // and waits
  EXPECT_EQ(got[0], 2);
  EXPECT_EQ(got[1], 1);
  cudaFree(there);
  cudaFreeHost(pinned);
  cudaStreamDestroy(stream);
}

TEST(CudaOnHostDeathTest, MemoryIsWhatACopySaysAndTheHostDoesNotTouchTheGpus) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  void* there = nullptr;
  cudaMalloc(&there, 256);
  std::byte here[512] = {};
  EXPECT_DEATH(cudaMemcpyAsync(here, there, 256, cudaMemcpyHostToDevice, stream), "not that of");
  EXPECT_DEATH(cudaMemcpyAsync(there, here, 257, cudaMemcpyHostToDevice, stream), "not that of");
  EXPECT_DEATH(queue(nullptr, nullptr, [] {}), "default stream");
  EXPECT_DEATH(static_cast<volatile std::byte*>(there)[0] = std::byte{1}, "");
  EXPECT_DEATH(
      {
        {
          const DeviceMemoryAccess access;
          static_cast<std::byte*>(there)[256] = std::byte{1};
        }
        cudaFree(there);
      },
      "written behind its memory");
  cudaFree(there);
  cudaStreamDestroy(stream);
}

// --- Graphs -------------------------------------------------------------------------------------

TEST(CudaOnHost, NodesOfAGraphHaveTheirArgumentsOfThenAndReadMemoryWhenTheyRun) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  int sum = 0;
  int step = 1;
  const auto add = [&sum](const int* step_there, int more) { sum += *step_there + more; };
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  int more = 10;
  queue(stream, &sum, [&add, &step, more] { add(&step, more); });
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  EXPECT_EQ(sum, 0);
  cudaGraphExec_t exec = nullptr;
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  more = 20;
  for (step = 1; step < 3; ++step) {
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
  }
  EXPECT_EQ(sum, 11 + 12);
  cudaGraphExecDestroy(exec);
  cudaStreamDestroy(stream);
}

TEST(CudaOnHostDeathTest, ACaptureForbidsWhatWaitsAndWhatTakesMemory) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const auto in_capture = [&](const std::function<void()>& call) {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    call();
  };
  void* memory = nullptr;
  int pageable = 0;
  EXPECT_DEATH(in_capture([&] { cudaMalloc(&memory, 1); }), "cudaMalloc while a stream captures");
  EXPECT_DEATH(in_capture([&] { cudaStreamSynchronize(stream); }), "while a stream captures");
  EXPECT_DEATH(in_capture([&] { cudaStreamQuery(stream); }), "while a stream captures");
  EXPECT_DEATH(in_capture([&] {
                 cudaMemcpyAsync(memory, &pageable, sizeof pageable, cudaMemcpyHostToDevice,
                                 stream);
               }),
               "pageable");
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace longhaul::test
