#include "base/kernel_text.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(KernelText, IsAllOfAFileWithoutASize) {
  const std::string text = kernel_text("/proc/self/status");
  EXPECT_TRUE(text.starts_with("Name:\t"));
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(KernelText, IsNothingWhereThereIsNoFile) { EXPECT_EQ(kernel_text("/proc/0/status"), ""); }

// As of a process that ends between opening and reading, where the error is ESRCH. This file can
// be opened, and has no byte at its start (EIO).
TEST(KernelText, IsNothingWhereReadingFails) { EXPECT_EQ(kernel_text("/proc/self/mem"), ""); }

}  // namespace
}  // namespace longhaul
