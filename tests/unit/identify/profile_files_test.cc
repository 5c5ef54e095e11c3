#include "tools/identify/profile_files.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "model/head_profile.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

FoundHeads heads() {
  return {.n_layers = 2,
          .n_kv_heads = 3,
          .gates = {0.25, 1.0009, -0.001, 0.5, 0.25, 0.0},
          .window = {.sink = 4, .recent = 17},
          .method = "duo_attention",
          .weights_sha256 = "abc",
          .details = {{"seed", 42}}};
}

// The published form: numpy's "%.18e", tabs, a row for each layer.
TEST(ProfileFiles, AreReadBackAsPublishedOnesAre) {
  const test::TemporaryFolder folder;
  write_profile(folder.path() / "made", heads());
  EXPECT_EQ(gates_tsv(heads()).substr(0, 49), "2.500000000000000000e-01\t1.000000000000000000e+00");
  const HeadProfile read = read_head_profile(folder.path() / "made");
  EXPECT_EQ(read.n_layers, 2);
  EXPECT_EQ(read.n_kv_heads, 3);
  EXPECT_EQ(read.gates, (std::vector<double>{0.25, 1, 0, 0.5, 0.25, 0}));
  EXPECT_EQ(read.sink, 4);
  EXPECT_EQ(read.recent, 17);
  EXPECT_EQ(read.weights_sha256, "abc");
}

// A profile of nan alone took the place of a good one.
TEST(ProfileFiles, GatesThatAreNotFiniteReplaceNothing) {
  const test::TemporaryFolder folder;
  write_profile(folder.path(), heads());
  for (const double broken :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    FoundHeads other = heads();
    other.gates[4] = broken;
    EXPECT_THROW(write_profile(folder.path(), other), Error);
    EXPECT_EQ(read_head_profile(folder.path()).gates[4], 0.25);
  }
}

// Masks of methods that learn 0 or 1, as PruLong does.
TEST(ProfileFiles, MasksAreProfiles) {
  const HeadProfile read =
      parse_head_profile("1\t0\n0\t1\n", "mask.tsv", R"({"sink_size": 4, "recent_size": 8})", "c");
  EXPECT_EQ(choose_roles(read, std::nullopt).n_retrieval(), 2);
  EXPECT_FALSE(read.weights_sha256);
}

TEST(ProfileFiles, RankingBreaksTiesByLayerAndHead) {
  EXPECT_EQ(ranking(heads().gates), (std::vector<std::size_t>{1, 3, 0, 4, 2, 5}));
  const std::string text = ranking_text(heads(), 2);
  EXPECT_NE(text.find("0:1"), std::string::npos);
  EXPECT_NE(text.find("widest gap: 0.5000, behind the first 1 of 6"), std::string::npos);
}

TEST(ProfileFiles, PictureHasACellForEachHead) {
  const std::string svg = gates_picture(heads(), "model");
  std::size_t n = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos;
       at = svg.find("<title>", at + 1))
    ++n;
  EXPECT_EQ(n, 6U);
}

}  // namespace
}  // namespace longhaul
