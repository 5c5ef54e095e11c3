#include "tools/bench/number_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::bench {
namespace {

using testing::ElementsAre;

TEST(NumberRanges, AreWrittenAsLlamaBenchTakesThem) {
  EXPECT_THAT(parse_ranges("512", "-p"), ElementsAre(512));
  EXPECT_THAT(parse_ranges("0,512,1024", "-p"), ElementsAre(0, 512, 1024));
  EXPECT_THAT(parse_ranges("1-3", "-t"), ElementsAre(1, 2, 3));
  EXPECT_THAT(parse_ranges("0-4096+2048", "-d"), ElementsAre(0, 2048, 4096));
  EXPECT_THAT(parse_ranges("0-5+2", "-d"), ElementsAre(0, 2, 4));
  EXPECT_THAT(parse_ranges("1K-16K*4,7", "-d"), ElementsAre(1024, 4096, 16384, 7));
  EXPECT_THAT(parse_ranges("1M,2k", "-d"), ElementsAre(1048576, 2048));
  EXPECT_THAT(parse_ranges("8KB,1Ki-4KiB*4", "-d"), ElementsAre(8000, 1024, 4096));
  EXPECT_THAT(parse_ranges("1M-1048576M*1048576", "-d"), ElementsAre(1 << 20, 1LL << 40));
}

TEST(NumberRanges, SayWhatIsNoList) {
  for (const char* text : {"", "x", "512,", ",512", "5-3", "1-8+0", "1-8*1", "0-8*2", "1-8/2", "-5",
                           "1.5", "5T", "99999999999999999999", "2000000M", "1-"}) {
    EXPECT_THROW(parse_ranges(text, "-p"), Error) << text;
  }
  EXPECT_THROW(parse_ranges("1-2000", "-p"), Error);
  try {
    parse_ranges("4,5x", "--n-depth");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--n-depth: '5x' is no number or range"));
  }
}

TEST(NumberRanges, PairsAreAPromptAndAGeneration) {
  EXPECT_EQ(parse_pair("512,128", "-pg"), (PromptAndGeneration{512, 128}));
  EXPECT_EQ(parse_pair("4K,1", "-pg"), (PromptAndGeneration{4096, 1}));
  for (const char* text : {"", "512", "512,", ",1", "512,0", "0,5", "1,2,3", "1;2"}) {
    EXPECT_THROW(parse_pair(text, "-pg"), Error) << text;
  }
}

}  // namespace
}  // namespace longhaul::bench
