#include "cluster/comm/shared_segment.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"

namespace longhaul::test {
namespace {

TEST(SharedSegment, IsOneMemoryForAllWhoOpenItsName) {
  SharedSegment made(4096);
  EXPECT_EQ(made.data()[4095], std::byte{0});
  const auto opened = SharedSegment::open(made.name(), 4096);
  ASSERT_TRUE(opened);
  EXPECT_NE(opened->data(), made.data());
  opened->data()[7] = std::byte{42};
  EXPECT_EQ(made.data()[7], std::byte{42});
  EXPECT_THROW(SharedSegment::open(made.name(), 8192), Error);
}

TEST(SharedSegment, WithoutANameStaysWithThoseWhoHaveIt) {
  SharedSegment made(4096);
  const std::string name = made.name();
  auto opened = SharedSegment::open(name, 4096);
  made.unlink();
  EXPECT_EQ(made.name(), "");
  EXPECT_FALSE(SharedSegment::open(name, 4096));
  { const SharedSegment gone = std::move(made); }
  ASSERT_TRUE(opened);
  opened->data()[0] = std::byte{1};
  EXPECT_EQ(opened->data()[0], std::byte{1});
}

TEST(SharedSegment, ItsNameGoesWithItsMaker) {
  std::string name;
  {
    const SharedSegment made(4096);
    name = made.name();
    EXPECT_NE(name, SharedSegment(4096).name());
  }
  EXPECT_FALSE(SharedSegment::open(name, 4096));
}

}  // namespace
}  // namespace longhaul::test
