// A suite of tests that need a GPU, real or emulated, and a stream on it; skipped visibly where
// there is none.
#pragma once
#include <gtest/gtest.h>

#include <memory>

#include "base/device/device_cuda.h"

namespace longhaul::test {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
    stream_ = std::make_unique<cuda::Stream>(0);
  }
  cuda::Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<cuda::Stream> stream_;
};

}  // namespace longhaul::test
