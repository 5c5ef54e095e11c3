// Which files of checkpoints are removed, and when.
#include "tools/job/checkpoints.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/support/paths.h"
#include "worker/snapshot/cache_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

class CheckpointFiles : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_);
    for (const char* name : {"doc.h5", "doc.part-0000.h5", "doc.read", "other.h5"})
      replace_file(folder_ / name, "x");
  }
  bool has(const char* name) const { return fs::exists(folder_ / name); }

  test::TemporaryFolder parent_;
  fs::path folder_ = parent_.path() / "out.checkpoints";
};

TEST_F(CheckpointFiles, GoWhenTheirDocumentIsAnswered) {
  Checkpoints checkpoints(folder_, Checkpoints::Folder::kShared);
  checkpoints.hooks().on_done("doc");
  EXPECT_FALSE(has("doc.h5") || has("doc.part-0000.h5") || has("doc.read") || has("doc.lock"));
  EXPECT_TRUE(has("other.h5"));
  checkpoints.hooks().on_done("other");
  EXPECT_FALSE(fs::exists(folder_)) << "it is empty";
}

TEST_F(CheckpointFiles, StayWhileSomebodyElseWritesThem) {
  Checkpoints checkpoints(folder_, Checkpoints::Folder::kOfThisRun);
  {
    const auto lock = lock_saved(folder_, "doc");
    ASSERT_TRUE(lock);
    EXPECT_FALSE(lock_saved(folder_, "doc"));
    checkpoints.hooks().on_done("doc");
    EXPECT_TRUE(has("doc.h5") && has("doc.part-0000.h5") && has("doc.lock"));
  }
  checkpoints.run_is_complete();
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace longhaul
