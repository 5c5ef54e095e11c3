// Choosing instruction sets and threads; work on several threads.
#include "kernels/cpu/isa.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"
#include "tests/unit/kernels/each_isa.h"

namespace longhaul::test {
namespace {

TEST(Isa, NamesRoundTrip) {
  for (const Isa isa :
       {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmx}) {
    EXPECT_EQ(isa_named(name_of(isa)), isa);
  }
  EXPECT_THROW(isa_named("avx1024"), Error);
}

TEST(Isa, TheBestIsActiveAndUnsupportedOnesAreRefused) {
  const std::vector<Isa> supported = supported_isas();
  ASSERT_FALSE(supported.empty());
  EXPECT_EQ(supported.front(), Isa::kBaseline);
  EXPECT_EQ(active_isa(), supported.back());
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
      EXPECT_THROW(set_active_isa(isa), Error);
    }
  }
}

TEST(KernelThreads, AreSetForTheCallingThreadAlone) {
  const int before = kernel_threads();
  set_kernel_threads(3);
  EXPECT_EQ(kernel_threads(), 3);
  int elsewhere = 0;
  std::thread([&] { elsewhere = kernel_threads(); }).join();
  EXPECT_EQ(elsewhere, before);
  set_kernel_threads(0);
  EXPECT_EQ(kernel_threads(), before);
  EXPECT_THROW(set_kernel_threads(-1), Error);
}

TEST(ParallelFor, RunsEveryTaskOnce) {
  set_kernel_threads(4);
  std::vector<std::atomic<int>> counts(1000);
  parallel_for(1000, [&](std::int64_t i) { ++counts[static_cast<std::size_t>(i)]; });
  for (const auto& count : counts) EXPECT_EQ(count, 1);
  std::atomic<std::int64_t> rows{0};
  parallel_rows(12345, 1000, [&](std::int64_t begin, std::int64_t end) { rows += end - begin; });
  EXPECT_EQ(rows, 12345);
  set_kernel_threads(0);
}

TEST(ParallelFor, ThrowsWhatATaskThrew) {
  set_kernel_threads(4);
  EXPECT_THROW(parallel_for(100,
                            [](std::int64_t i) {
                              if (i == 57) throw Error(ErrorCode::kInternal, "57");
                            }),
               Error);
  set_kernel_threads(0);
}

}  // namespace
}  // namespace longhaul::test
