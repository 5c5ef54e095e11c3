#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

TEST(MappedFile, ReadsEmptyAndSmallFiles) {
  const test::TemporaryFolder folder;
  replace_file(folder.path() / "empty", "");
  replace_file(folder.path() / "small", "abc");
  EXPECT_EQ(MappedFile(folder.path() / "empty").text(), "");
  EXPECT_EQ(MappedFile(folder.path() / "small").text(), "abc");
}

TEST(MappedFile, NamesWhatIsWrong) {
  const test::TemporaryFolder folder;
  try {
    MappedFile file(folder.path() / "missing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("missing: No such file"));
  }
  EXPECT_THROW(MappedFile file(folder.path()), Error);  // a folder
}

TEST(AppendFile, AppendsAndExcludesASecondWriter) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "out.jsonl";
  {
    AppendFile file(path);
    file.append("one\n");
    file.sync();
    EXPECT_THROW(AppendFile second(path), Error);
    file.append("two\n");
    file.truncate(4);
  }
  AppendFile(path).append("three\n");
  EXPECT_EQ(read_file(path, 100), "one\nthree\n");
  EXPECT_THROW(read_file(path, 5), Error);
}

}  // namespace
}  // namespace longhaul
