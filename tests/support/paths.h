// Where tests find their data, and folders of their own to write in.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string_view>

namespace longhaul::test {

// A file or folder of the repository, such as source_path("tests/golden/models").
std::filesystem::path source_path(std::string_view relative);
// A file or folder of the needle example, such as example_path("model").
std::filesystem::path example_path(std::string_view relative);
// A file or folder of the shared data beside the checkout; it may be missing.
std::filesystem::path shared_path(std::string_view relative);

// A new empty folder, removed with all it holds at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace longhaul::test

// Skips the test, saying what is missing.
#define LONGHAUL_SKIP_UNLESS_SHARED(relative)                            \
  if (!std::filesystem::exists(::longhaul::test::shared_path(relative))) \
  GTEST_SKIP() << "skipped: " << ::longhaul::test::shared_path(relative) << " is not there"
