#include "base/sizes.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(ByteSize, LettersAreBinaryAndWithABDecimal) {
  EXPECT_EQ(byte_size_from("16G"), 16 * kGiB);
  EXPECT_EQ(byte_size_from("16 GiB"), 16 * kGiB);
  EXPECT_EQ(byte_size_from("1.5 gib"), 3 * kGiB / 2);
  EXPECT_EQ(byte_size_from("2GB"), 2'000'000'000);
  EXPECT_EQ(byte_size_from("4096"), 4096);
  EXPECT_EQ(byte_size_from("7 B"), 7);
  for (const char* wrong : {"", "G", "-1G", "1 Gibi", "inf", "nan", "1e300", "1 G B"})
    EXPECT_EQ(byte_size_from(wrong), std::nullopt) << wrong;
}

TEST(ByteSize, IsPrintedInBinaryUnits) {
  EXPECT_EQ(format_byte_size(512), "512 B");
  EXPECT_EQ(format_byte_size(3 * kGiB / 2), "1.50 GiB");
  EXPECT_EQ(format_byte_size(64 * kGiB), "64.0 GiB");
  EXPECT_EQ(format_byte_size(1023), "1.00 KiB");
  EXPECT_EQ(format_byte_size(-2 * kGiB), "-2.00 GiB");
}

TEST(Count, HasTheSameUnits) {
  EXPECT_EQ(count_from("0"), 0);
  EXPECT_EQ(count_from("1000000"), 1'000'000);
  EXPECT_EQ(count_from("128K"), 131'072);
  EXPECT_EQ(count_from("1m"), 1'048'576);
  EXPECT_EQ(count_from("2G"), 2 * kGiB);
  EXPECT_EQ(count_from("8KB"), 8000);
  EXPECT_EQ(count_from("8KiB"), 8192);
  EXPECT_EQ(count_from("1Ki"), 1024);
  EXPECT_EQ(count_from("1MB"), 1'000'000);
  EXPECT_EQ(count_from("1 K"), 1024);
  EXPECT_EQ(count_from("1.5K"), 1536);
  for (const char* wrong :
       {"", "K", "-1K", "1.5", "0.3K", "8X", "8B", "9223372036854775807", "inf"})
    EXPECT_EQ(count_from(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace longhaul
