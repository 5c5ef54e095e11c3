// Four emulated GPUs, and a made-up NCCL in the place of the real one: the name by which the
// program opens it is that of the library that is open already.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/multirank/support/fake_gpus.h"

namespace longhaul::test {
namespace {

class FakeGpus : public testing::Environment {
 public:
  void SetUp() override {
    set_fake_gpus(4);
    set_fake_gpus_patience(std::chrono::minutes(2));
    ASSERT_NE(::dlopen(LONGHAUL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  }
};

const auto* const kFakeGpus = testing::AddGlobalTestEnvironment(new FakeGpus);

}  // namespace
}  // namespace longhaul::test
