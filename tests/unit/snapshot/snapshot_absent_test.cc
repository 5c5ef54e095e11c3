// A build without HDF5 says so instead of saving nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

TEST(SnapshotAbsent, SavingIsUnsupportedByName) {
  const test::TemporaryFolder folder;
  Worker worker({.weights = test::tiny_weights(), .n_threads = 1});
  test::done(worker.step(OpenSequence{{1}, {}}));
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  test::prefill(worker, {1}, tokens, 3);
  const StepResult result = worker.step(
      SaveSequence{{1}, folder.path().string(), "doc-1", {1, 2, 3}, {{"content_id", "1"}}});
  ASSERT_TRUE(std::holds_alternative<StepFailed>(result));
  EXPECT_EQ(std::get<StepFailed>(result).code, ErrorCode::kUnsupported);
  EXPECT_THAT(std::get<StepFailed>(result).message, testing::HasSubstr("HDF5"));
}

}  // namespace
}  // namespace longhaul
