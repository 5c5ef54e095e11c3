// Files that are read and written past the page cache: every byte is the one that it should be,
// whatever the offset, whether the system holds the file or not, and whoever writes beside.
#include "base/direct_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/direct_output.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/ids.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

constexpr std::size_t kSector = DirectFile::kSectorBytes;

std::vector<std::byte> some_bytes(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 251);
  return bytes;
}

void write_synced(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(file);
  ::close(file);
}

// The system then reads it from the disk again.
void forget(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

TEST(DirectFile, ReadsWhatIsThereFromMemoryAndFromTheDisk) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  const std::vector<std::byte> all = some_bytes(5 * kSector + 77);
  write_synced(path, all);
  const DirectFile file(path);
  HostMemory room(kHugePageBytes);
  for (const bool is_forgotten : {false, true}) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, kSector - 1, kSector,
                                     3 * kSector + 5, all.size() - 1, all.size()}) {
      for (const std::size_t n :
           {std::size_t{0}, std::size_t{1}, kSector, 2 * kSector + 3, all.size() - offset}) {
        if (offset + n > all.size()) continue;
        if (is_forgotten) forget(path);
        const auto read =
            file.read(static_cast<std::int64_t>(offset), n, {room.data(), room.bytes()});
        EXPECT_TRUE(
            std::equal(read.begin(), read.end(), all.begin() + offset, all.begin() + offset + n))
            << offset << " " << n;
      }
    }
  }
}

TEST(DirectFile, SaysWhereAFileEnds) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  write_synced(path, some_bytes(kSector + 10));
  const DirectFile file(path);
  HostMemory room(kHugePageBytes);
  for (const bool is_forgotten : {false, true}) {
    if (is_forgotten) forget(path);
    try {
      file.read(kSector, 11, {room.data(), room.bytes()});
      FAIL() << "read past the end";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), testing::HasSubstr(path.string() + " ends before byte"));
    }
  }
  EXPECT_THROW(DirectFile(folder.path() / "none"), Error);
}

TEST(DirectOutput, ThreadsFillTheirPlacesAndNoOther) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  const std::vector<std::byte> before = some_bytes(3 * kSector);
  write_synced(path, before);
  // Whole sectors with a few bytes after them, and what begins anywhere.
  const std::vector<Extent> places = {{kSector, 9 * kSector + 4},
                                      {10 * kSector, 10 * kSector + 4},
                                      {11 * kSector + 3, 31 * kSector},
                                      {40 * kSector, 41 * kSector}};
  std::vector<std::byte> expected(41 * kSector);
  std::copy(before.begin(), before.end(), expected.begin());
  {
    DirectOutput out(path);
    out.reserve(41 * kSector);
    std::vector<std::jthread> threads;
    for (const Extent& place : places) {
      const auto n = static_cast<std::size_t>(place.size());
      const std::vector<std::byte> bytes = some_bytes(n);
      std::copy(bytes.begin(), bytes.end(), expected.begin() + place.begin);
      threads.emplace_back([&out, place, bytes] {
        HostMemory memory(kHugePageBytes);
        std::copy(bytes.begin(), bytes.end(), memory.data());
        out.write(place.begin, {memory.data(), bytes.size()});
      });
    }
    threads.clear();
    out.finish();
  }
  std::ifstream in(path, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(in), {}};
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_EQ(found, std::string(reinterpret_cast<const char*>(expected.data()), expected.size()));
}

TEST(DirectOutput, NamesTheFileThatIsNotThere) {
  const test::TemporaryFolder folder;
  try {
    DirectOutput out(folder.path() / "none");
    FAIL() << "there is no file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr((folder.path() / "none").string()));
  }
}

}  // namespace
}  // namespace longhaul
