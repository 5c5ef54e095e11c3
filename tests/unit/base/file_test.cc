#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "base/error.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

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
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
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

TEST(MappedFile, APipeIsRefusedBeforeItBlocks) {
  const test::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal([&] { MappedFile file(pipe); }), testing::HasSubstr("it is a pipe"));
  EXPECT_THAT(refusal([&] { read_file(pipe, 10); }), testing::HasSubstr("it is a pipe"));
  EXPECT_THAT(refusal([&] { AppendFile file(pipe); }), testing::HasSubstr("it is a pipe"));
  EXPECT_THAT(refusal([&] { AppendFile file("/dev/full"); }), testing::HasSubstr("it is a device"));
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  EXPECT_THAT(refusal([&] { AppendFile file(folder.path() / "loop"); }),
              testing::HasSubstr("symbolic links"));
}

// A plan once took the place of /dev/null.
TEST(ReplaceFile, TakesThePlaceOfRegularFilesOnly) {
  const test::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // No device, which a program that fails here would destroy.
  for (const auto& [path, kind] :
       {std::pair{pipe, "it is a pipe"}, {folder.path(), "it is a folder"}}) {
    EXPECT_THAT(refusal([&] { replace_file(path, "a"); }), testing::HasSubstr(kind));
    EXPECT_THAT(refusal([&] { require_replaceable(path); }), testing::HasSubstr(kind));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(ReplaceFile, FollowsLinks) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "there");
  for (const char* name : {"old", "new"}) {
    const auto file = folder.path() / "there" / name;
    const auto link = folder.path() / name;
    if (name == std::string("old")) replace_file(file, "before");
    std::filesystem::create_symlink(std::filesystem::path("there") / name, link);
    require_replaceable(link);
    replace_file(link, "after");
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(read_file(file, 10), "after");
  }
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  EXPECT_THAT(refusal([&] { replace_file(folder.path() / "loop", "a"); }),
              testing::HasSubstr("symbolic links"));
}

TEST(ReplaceFile, IsRefusedBeforehandWhereThereIsNoFolder) {
  const test::TemporaryFolder folder;
  require_replaceable(folder.path() / "file");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "file"));
  EXPECT_THAT(refusal([&] { require_replaceable(folder.path() / "none" / "file"); }),
              testing::HasSubstr("there is no folder"));
}

TEST(ReadFile, EndsWhenAStopIsAskedFor) {
  const test::TemporaryFolder folder;
  replace_file(folder.path() / "a", "text");
  EXPECT_EQ(read_file(folder.path() / "a", 4, [] { return false; }), "text");
  EXPECT_THROW(read_file(folder.path() / "a", 4, [] { return true; }), Error);
  // Files of the kernel say that they are empty.
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).empty());
}

// Results were once reported that were not there any more.
TEST(AppendFile, NoticesThatSomebodyElseChangedTheFile) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "out";
  const auto said_after = [&](const std::function<void()>& change) {
    std::filesystem::remove(path);
    AppendFile file(path);
    EXPECT_TRUE(file.was_created());
    file.append("one\n");
    change();
    const std::string said = refusal([&] { file.append("two\n"); });
    EXPECT_EQ(said, refusal([&] { file.require_unchanged(); }));
    return said;
  };
  using testing::HasSubstr;
  EXPECT_EQ(said_after([] {}), "nothing was thrown");
  EXPECT_THAT(said_after([&] { std::filesystem::remove(path); }), HasSubstr("it is gone"));
  EXPECT_THAT(said_after([&] { replace_file(path, "one\n"); }),
              HasSubstr("another file has its name"));
  EXPECT_THAT(said_after([&] { std::filesystem::resize_file(path, 2); }),
              HasSubstr("it had 4 bytes and has 2"));
  EXPECT_THAT(said_after([&] { std::ofstream(path, std::ios::app) << "x"; }),
              HasSubstr("it had 4 bytes and has 5"));
}

}  // namespace
}  // namespace longhaul
