// `longhaul run --save-kv`: documents' caches lie in files when the run ends, also when it was
// killed on the way; a folder that cannot be written is refused at start.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "tests/fault/child_process.h"
#include "tests/fault/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/unit/snapshot/dealt_caches.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using testing::HasSubstr;

constexpr int kDocuments = 3;

class SaveKv : public testing::Test {
 protected:
  SaveKv() {
    const std::string log = read_file(test::example_path("documents/harbour_log.txt"), 1 << 20);
    std::string requests;
    for (int i = 0; i < 2 * kDocuments; ++i) {
      const auto document = static_cast<std::size_t>(i % kDocuments);
      replace_file(folder_.path() / fmt::format("{}.txt", document),
                   log.substr(document * 1500, 3000));
      requests += fmt::format(
          R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":)"
          R"({{"prompt":"\nQuestion:","max_tokens":2,"documents":[{{"path":"{}.txt"}}]}}}})"
          "\n",
          i, document);
    }
    replace_file(folder_.path() / "requests.jsonl", requests);
  }
  std::vector<std::string> command(const fs::path& caches) const {
    const auto file = [&](const char* name) { return (folder_.path() / name).string(); };
    return {"run",
            "-m",
            test::example_path("model").string(),
            "--head-profile",
            test::example_path("profile").string(),
            "-i",
            file("requests.jsonl"),
            "-o",
            file("out.jsonl"),
            "--save-kv",
            caches.string(),
            "--threads",
            "1",
            "--no-progress"};
  }
  std::vector<fs::path> masters() const {
    std::vector<fs::path> found;
    if (!fs::exists(caches_)) return found;
    for (const auto& entry : fs::directory_iterator(caches_)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".h5") && name.find(".part-") == std::string::npos)
        found.push_back(entry.path());
    }
    return found;
  }
  test::TemporaryFolder folder_;
  fs::path caches_ = folder_.path() / "caches";
  test::Random random_{test::base_seed()};
};

TEST_F(SaveKv, EveryDocumentIsThereAfterKillsToo) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  for (int round = 0; round < 8; ++round) {
    ChildProcess process(folder_.path(), command(caches_));
    std::this_thread::sleep_for(std::chrono::milliseconds(random_.integer(50, 600)));
    process.signal(SIGKILL);
    process.wait();
    for (const fs::path& master : masters()) {
      EXPECT_EQ(test::run_check({"whole", master.string()}), "");
    }
  }
  ChildProcess process(folder_.path(), command(caches_));
  ASSERT_EQ(process.wait(), 0) << process.errors();
  ASSERT_EQ(masters().size(), static_cast<std::size_t>(kDocuments));
  for (const fs::path& master : masters()) {
    EXPECT_EQ(test::run_check({"whole", master.string()}), "");
  }
}

TEST_F(SaveKv, RanksUnderMpirunSaveWholeDocuments) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  ChildProcess process(folder_.path(), command(caches_), test::mpirun_variables(), test::mpirun(3));
  ASSERT_EQ(process.wait(), 0) << process.errors();
  ASSERT_EQ(masters().size(), static_cast<std::size_t>(kDocuments));
  for (const fs::path& master : masters()) {
    EXPECT_EQ(test::run_check({"whole", master.string()}), "");
  }
}

TEST_F(SaveKv, AFolderThatCannotBeIsRefusedAtStart) {
  ChildProcess process(folder_.path(), command(folder_.path() / "requests.jsonl"));
  EXPECT_EQ(process.wait(), 4);
  EXPECT_THAT(process.errors(), HasSubstr("--save-kv"));
  EXPECT_FALSE(fs::exists(folder_.path() / "out.jsonl"));
}

// Nothing was said, and the folder stayed empty.
TEST_F(SaveKv, WithoutDocumentsThereIsNothingToSave) {
  const std::string folder = caches_.string();
  fs::create_directory(caches_);
  ChildProcess process(folder_.path(), {"run", "-m", test::example_path("model").string(), "-p",
                                        "Hi", "-n", "1", "--save-kv", folder, "--load-kv", folder});
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr(fmt::format("--save-kv {}: nothing is saved", folder)));
  EXPECT_THAT(process.errors(), HasSubstr(fmt::format("--load-kv {}: nothing is taken", folder)));
}

// They were removed with the checkpoints, also those of earlier runs, and the run ended with 0.
TEST_F(SaveKv, CheckpointsDoNotGoWhereCachesAreKept) {
  const std::string caches = caches_.string();
  const auto expect_refused = [&](const fs::path& saved, const std::vector<std::string>& more) {
    std::vector<std::string> words = command(saved);
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess process(folder_.path(), words);
    EXPECT_EQ(process.wait(), 2);
    EXPECT_THAT(process.errors(), HasSubstr("this run's checkpoints go there"));
    EXPECT_FALSE(fs::exists(folder_.path() / "out.jsonl"));
  };
  expect_refused(caches_, {"--checkpoint-dir", caches + "/"});
  expect_refused(folder_.path() / "out.checkpoints", {});
  fs::create_directory(caches_);
  expect_refused(folder_.path() / "others", {"--load-kv", caches, "--checkpoint-dir", caches});
}

}  // namespace
}  // namespace longhaul
