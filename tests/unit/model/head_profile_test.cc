#include "model/head_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "model/model_spec.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"

namespace longhaul {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kProfileConfig = R"({"sink_size": 128, "recent_size": 256, "lr": 0.02})";

HeadProfile parse_profile(std::string_view tsv, std::string_view config = kProfileConfig) {
  return parse_head_profile(tsv, "heads.tsv", config, "config.json");
}

// n heads in one layer, gates 1, (n-1)/n, ...: no ties.
HeadProfile distinct_gates(std::int64_t n) {
  HeadProfile profile{.n_layers = 1, .n_kv_heads = n, .gates = {}, .sink = 4, .recent = 8};
  for (std::int64_t i = 0; i < n; ++i) {
    profile.gates.push_back(static_cast<double>(n - i) / static_cast<double>(n));
  }
  return profile;
}

TEST(HeadProfile, ReadsRowsAsLayersAndClipsGates) {
  const HeadProfile profile = parse_profile("-1e-4\t0.5\r\n1.0000000e+00\t1.25e-1\n9e-1\t1.001\n");
  EXPECT_EQ(profile.n_layers, 3);
  EXPECT_EQ(profile.n_kv_heads, 2);
  EXPECT_EQ(profile.sink, 128);
  EXPECT_EQ(profile.recent, 256);
  EXPECT_EQ(profile.gate({0}, {0}), 0.0);
  EXPECT_EQ(profile.gate({1}, {1}), 0.125);
  EXPECT_EQ(profile.gate({2}, {1}), 1.0);
}

TEST(HeadProfile, SaysLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "line 1, column 1: the file is empty"},
      {"1\t2x\n", "line 1, column 2: expected a number, found '2x'"},
      {"1\t1\n1\t\n", "line 2, column 2: expected a number, found nothing"},
      {"1\t1\n\n", "line 2, column 1"},
      {"1\t1\n1\n", "line 2, column 1: the row has 1 columns, the rows before it 2"},
      {"1\t1\n1\t0.5", "line 2, column 1: the last line does not end with a newline"},
      {"nan\n", "line 1, column 1: nan is no gate"},
      {"inf\n", "inf is no gate"},
      {"1e400\n", "line 1, column 1"},
      {"7\n", "line 1, column 1: 7 is no gate"},
      {"1 1\n", "found '1 1'"},
      {"\xff\n", "found something else"},
  };
  for (const auto& [tsv, named] : cases) {
    EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { parse_profile(tsv); }),
                AllOf(HasSubstr("heads.tsv: "), HasSubstr(named)));
  }
}

TEST(HeadProfile, ChecksTheConfiguration) {
  const auto refusal = [](std::string_view config) {
    return message_of(ErrorCode::kCorruptData, [&] { parse_profile("1\n", config); });
  };
  EXPECT_THAT(refusal(R"({"sink_size": 1})"), HasSubstr("config.json: recent_size is missing"));
  EXPECT_THAT(refusal(R"({"sink_size": -1, "recent_size": 1})"), HasSubstr("sink_size: -1"));
  EXPECT_THAT(refusal(R"({"sink_size": 1, "recent_size": 0})"), HasSubstr("recent_size: 0"));
  EXPECT_THAT(refusal(R"({"sink_size": 1e30, "recent_size": 1})"), HasSubstr("sink_size"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object"));
}

TEST(HeadProfile, FindsBothFilesFromTheFolderOrTheTsv) {
  const test::TemporaryFolder folder;
  const auto tsv = folder.path() / "full_attention_heads.tsv";
  std::ofstream(tsv) << "0.75\t0\n";
  EXPECT_THAT(message_of(ErrorCode::kInvalidArgument, [&] { read_head_profile(folder.path()); }),
              HasSubstr("config.json is not there"));
  std::ofstream(folder.path() / "config.json") << kProfileConfig;
  EXPECT_EQ(read_head_profile(folder.path()).gate({0}, {0}), 0.75);
  EXPECT_EQ(read_head_profile(tsv).gate({0}, {0}), 0.75);
}

TEST(ChooseRoles, WithoutRatioKeepsGatesOfHalfAndMore) {
  const HeadRoles roles = choose_roles(parse_profile("0.5\t0.49999\n0\t1\n"), std::nullopt);
  EXPECT_EQ(roles.role({0}, {0}), HeadRole::kRetrieval);
  EXPECT_EQ(roles.role({0}, {1}), HeadRole::kStreaming);
  EXPECT_EQ(roles.n_retrieval(), 2);
  EXPECT_EQ(roles.n_retrieval(LayerId{1}), 1);
  EXPECT_EQ(roles.sink, 128);
  EXPECT_EQ(roles.recent, 256);
}

// The published binarisation (np.quantile over all gates), 256 heads: sparsity -> heads kept.
TEST(ChooseRoles, KeepsThePublishedCount) {
  const std::pair<double, std::int64_t> table[] = {{.1, 230}, {.2, 205}, {.25, 192}, {.3, 179},
                                                   {.4, 154}, {.5, 128}, {.6, 103},  {.75, 64},
                                                   {.8, 52},  {.9, 26},  {0, 256},   {1, 0}};
  for (const auto& [sparsity, kept] : table) {
    EXPECT_EQ(choose_roles(distinct_gates(256), 1 - sparsity).n_retrieval(), kept) << sparsity;
  }
  EXPECT_EQ(choose_roles(distinct_gates(256), 0.4).n_retrieval(), 103);  // 1 - 0.6 written directly
  EXPECT_EQ(choose_roles(distinct_gates(256), 0.2).n_retrieval(), 52);
  EXPECT_EQ(choose_roles(distinct_gates(1), 0.5).n_retrieval(),
            1);  // h = 0: integral, all are kept
}

TEST(ChooseRoles, RatiosOutsideZeroToOneAreNoneAndAll) {
  const HeadProfile profile = distinct_gates(8);
  EXPECT_EQ(choose_roles(profile, -0.5).n_retrieval(), 0);
  EXPECT_EQ(choose_roles(profile, 7.0).n_retrieval(), 8);
  EXPECT_THAT(message_of(ErrorCode::kInvalidArgument,
                         [&] { choose_roles(profile, std::numeric_limits<double>::quiet_NaN()); }),
              HasSubstr("retrieval ratio"));
}

TEST(ChooseRoles, TiesGoToTheLowerLayerThenTheLowerHead) {
  const HeadRoles roles =
      choose_roles(parse_profile("0\t1\t1\n1\t1\t1\n"), 0.5);  // 3 of 5 that tie
  ASSERT_EQ(roles.n_retrieval(), 3);
  EXPECT_EQ(roles.role({0}, {1}), HeadRole::kRetrieval);
  EXPECT_EQ(roles.role({0}, {2}), HeadRole::kRetrieval);
  EXPECT_EQ(roles.role({1}, {0}), HeadRole::kRetrieval);
}

TEST(ChooseRoles, NearlyIntegralRatiosAreTakenAsIntegral) {
  for (std::int64_t n = 2; n < 400; ++n) {
    for (std::int64_t h = 0; h < n; ++h) {
      const double ratio = 1 - static_cast<double>(h) / static_cast<double>(n - 1);
      const std::int64_t want = ratio <= 0 ? 0 : n - h;
      ASSERT_EQ(choose_roles(distinct_gates(n), ratio).n_retrieval(), want) << n << " " << h;
    }
    n += 37;
  }
}

TEST(HeadRoles, AllRetrievalAndDescription) {
  const HeadRoles roles = HeadRoles::all_retrieval(2, 3);
  EXPECT_EQ(roles.n_retrieval(), 6);
  EXPECT_EQ(describe(choose_roles(parse_profile("0\t1\n0\t0\n"), std::nullopt)),
            "1 of 4 KV heads keep every token, the others 128 first and 256 last tokens; per "
            "layer: 1 0");
}

TEST(HeadProfile, FitsOnlyItsModel) {
  ModelSpec spec;
  spec.n_layers = 1;
  spec.n_kv_heads = 8;
  EXPECT_NO_THROW(check_profile_fits(distinct_gates(8), spec));
  spec.n_layers = 2;
  EXPECT_THAT(
      message_of(ErrorCode::kInvalidArgument, [&] { check_profile_fits(distinct_gates(8), spec); }),
      HasSubstr("1 layers of 8 KV heads, the model 2 of 8"));
}

// Published files: at sparsity 0.5, heads strictly above the median gate, per layer.
struct Published {
  const char* model;
  std::int64_t n_kv_heads;
  std::int64_t n_zero, n_one, n_above;
  std::vector<std::int64_t> above_per_layer;
};
const Published kPublished[] = {
    {"Llama-2-7B-32K-Instruct", 32, 274, 145, 512, {12, 21, 4,  10, 4,  11, 14, 13, 14, 13, 18,
                                                    17, 18, 19, 23, 20, 21, 20, 21, 19, 19, 15,
                                                    20, 9,  17, 14, 20, 9,  12, 15, 22, 28}},
    {"Llama-3-8B-Instruct-Gradient-1048k", 8, 18, 82, 127, {1, 1, 2, 2, 2, 4, 2, 4, 6, 4, 5,
                                                            3, 2, 6, 5, 5, 5, 6, 3, 5, 6, 3,
                                                            3, 6, 4, 4, 3, 4, 6, 5, 8, 2}},
    {"Llama-3-8B-Instruct-Gradient-4194k", 8, 15, 80, 127, {2, 1, 3, 0, 2, 5, 2, 4, 5, 3, 4,
                                                            4, 1, 6, 4, 5, 5, 6, 3, 3, 6, 4,
                                                            5, 5, 5, 5, 5, 6, 5, 5, 8, 0}},
    {"Meta-Llama-3.1-8B-Instruct", 8, 7, 57, 128, {2, 3, 4, 1, 4, 2, 2, 6, 4, 6, 5, 5, 2, 8, 4, 5,
                                                   4, 6, 3, 4, 5, 2, 4, 5, 3, 3, 3, 4, 5, 5, 8, 1}},
    {"Mistral-7B-Instruct-v0.2", 8, 5, 110, 110, {3, 4, 6, 2, 4, 1, 3, 3, 2, 3, 1, 3, 6, 1, 3, 4,
                                                  5, 2, 7, 5, 6, 3, 2, 3, 3, 2, 4, 1, 4, 5, 5, 4}},
    {"Mistral-7B-Instruct-v0.3", 8, 8, 107, 128, {2, 3, 5, 2, 3, 4, 3, 4, 1, 2, 3, 5, 5, 1, 5, 5,
                                                  4, 2, 7, 5, 5, 6, 3, 4, 4, 3, 6, 3, 4, 7, 6, 6}},
};

TEST(HeadProfile, PublishedFilesGiveThePublishedCounts) {
  for (const Published& published : kPublished) {
    SCOPED_TRACE(published.model);
    const std::string folder = fmt::format("patterns/{}", published.model);
    LONGHAUL_SKIP_UNLESS_SHARED(folder);
    const HeadProfile profile = read_head_profile(test::shared_path(folder));
    ASSERT_EQ(profile.n_layers, 32);
    ASSERT_EQ(profile.n_kv_heads, published.n_kv_heads);
    EXPECT_EQ(profile.sink, 128);
    EXPECT_EQ(profile.recent, 256);
    const auto& gates = profile.gates;
    EXPECT_EQ(std::count(gates.begin(), gates.end(), 0.0), published.n_zero);
    EXPECT_EQ(std::count(gates.begin(), gates.end(), 1.0), published.n_one);

    // The heads above the median are always kept; ties with it fill up to one half.
    const HeadRoles roles = choose_roles(profile, 0.5);
    EXPECT_EQ(roles.n_retrieval(), static_cast<std::int64_t>(gates.size()) / 2);
    std::vector<double> sorted = gates;
    std::sort(sorted.begin(), sorted.end());
    const double median = (sorted[sorted.size() / 2 - 1] + sorted[sorted.size() / 2]) / 2;
    std::int64_t n_above = 0;
    for (std::int64_t layer = 0; layer < 32; ++layer) {
      std::int64_t above = 0;
      for (std::int64_t head = 0; head < published.n_kv_heads; ++head) {
        const double gate = profile.gate({layer}, {head});
        above += gate > median ? 1 : 0;
        EXPECT_FALSE(gate > median && roles.role({layer}, {head}) == HeadRole::kStreaming);
        EXPECT_FALSE(gate < median && roles.role({layer}, {head}) == HeadRole::kRetrieval);
      }
      EXPECT_EQ(above, published.above_per_layer[static_cast<std::size_t>(layer)]) << layer;
      n_above += above;
    }
    EXPECT_EQ(n_above, published.n_above);
  }
}

}  // namespace
}  // namespace longhaul
