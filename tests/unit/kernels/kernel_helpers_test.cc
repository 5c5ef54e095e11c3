// Threads that help a thread's kernels.
#include <gtest/gtest.h>

#include <atomic>

#include "kernels/cpu/parallel.h"
#include "tests/support/process_threads.h"

namespace longhaul {
namespace {

constexpr int kThreads = 3;

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
  run_a_kernel();
  const std::int64_t with_helpers = test::process_threads();
  run_a_kernel();
  EXPECT_EQ(test::process_threads(), with_helpers);
  end_kernel_helpers();
  EXPECT_TRUE(test::process_threads_become(with_helpers - (kThreads - 1)));
}

TEST_F(KernelHelpers, StartAgain) {
  run_a_kernel();
  const std::int64_t with_helpers = test::process_threads();
  end_kernel_helpers();
  end_kernel_helpers();
  run_a_kernel();
  EXPECT_TRUE(test::process_threads_become(with_helpers));
  end_kernel_helpers();
}

}  // namespace
}  // namespace longhaul
