// Threads that help a thread's kernels.
#include <gtest/gtest.h>

#include <atomic>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"
#include "tests/support/process_threads.h"

namespace longhaul {
namespace {

constexpr std::size_t kThreads = 3;

void run_a_kernel() {
  std::atomic<std::int64_t> sum = 0;
  parallel_for(64, [&](std::int64_t i) { sum += i; });
  EXPECT_EQ(sum, 2016);
}

class KernelHelpers : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::kKernelHelpersEnd) GTEST_SKIP() << "LLVM's OpenMP keeps helpers";
    end_kernel_helpers();
    set_kernel_threads(kThreads);
  }
  void TearDown() override { set_kernel_threads(0); }
};

TEST_F(KernelHelpers, StayUntilTheyAreEnded) {
  const test::ThreadIds before = test::process_threads();
  run_a_kernel();
  const test::ThreadIds helpers = test::threads_since(before);
  EXPECT_EQ(helpers.size(), kThreads - 1);
  run_a_kernel();
  EXPECT_EQ(test::threads_since(before), helpers);
  end_kernel_helpers();
  EXPECT_TRUE(test::only_stay(helpers, 0));
}

TEST_F(KernelHelpers, StartAgain) {
  run_a_kernel();
  end_kernel_helpers();
  end_kernel_helpers();
  const test::ThreadIds before = test::process_threads();
  run_a_kernel();
  EXPECT_EQ(test::threads_since(before).size(), kThreads - 1);
  end_kernel_helpers();
}

}  // namespace
}  // namespace longhaul
