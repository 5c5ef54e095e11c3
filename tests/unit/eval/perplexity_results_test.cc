// What a perplexity evaluation compares and writes.
#include "tools/eval/perplexity_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "tests/unit/eval/xml_check.h"
#include "tools/eval/perplexity_policies.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PerplexityReport perplexity_sample() {
  PolicyCurve dense{.name = "dense", .description = "all", .seconds = 0.5, .kv_bytes = 10};
  for (std::int64_t i = 1; i < 600; ++i) dense.tokens.push_back({i, i < 512 ? 1.0 : 3.0});
  PolicyCurve sparse{.name = "recompute", .description = "few", .seconds = 0.1};
  for (std::int64_t i = 1; i < 600; i += 300) sparse.tokens.push_back({i, 2.0});
  return {.title = "T",
          .settings = JsonObject{{"seed", 1}},
          .n_tokens = 600,
          .bucket = 300,
          .curves = {dense, sparse, PolicyCurve{.name = "none"}}};
}

TEST(PerplexityResults, MeansAreOfTheScoredPositions) {
  const PerplexityReport report = perplexity_sample();
  EXPECT_EQ(mean_nll(report.curves[0], {0, 512}), 1.0);
  EXPECT_EQ(mean_nll(report.curves[0], {511, 513}), 2.0);
  EXPECT_EQ(mean_nll(report.curves[1], {2, 301}), std::nullopt);
  EXPECT_EQ(mean_nll(report.curves[1], {2, 302}), 2.0);
  EXPECT_EQ(report.curves[2].seconds_per_token(), std::nullopt);
  EXPECT_THAT(doubling_ranges(600, 256),
              ElementsAre(Extent{0, 256}, Extent{256, 512}, Extent{512, 600}));
  EXPECT_THAT(doubling_ranges(256, 256), ElementsAre(Extent{0, 256}));
}

TEST(PerplexityResults, AreWrittenAsCsv) {
  EXPECT_EQ(to_csv(perplexity_sample()),
            "policy,begin,end,tokens,mean_nll\n"
            "dense,0,300,299,1\n"
            "dense,300,600,300,1.58667\n"
            "recompute,0,300,1,2\n"
            "recompute,300,600,1,2\n"
            "none,0,300,0,\n"
            "none,300,600,0,\n");
}

// Names of policies have commas; they once made more columns.
TEST(PerplexityResults, NamesWithCommasAreOneFieldOfCsv) {
  PerplexityReport report = perplexity_sample();
  report.curves[0].name = "streaming:sink=4,window=512";
  EXPECT_THAT(to_csv(report),
              testing::HasSubstr("\n\"streaming:sink=4,window=512\",0,300,299,1\n"));
}

TEST(PerplexityResults, AreWrittenAsJson) {
  const Json json = parse_json(to_text(to_json(perplexity_sample())), "report");
  const JsonField policies = JsonField(json, "report").at("policies");
  EXPECT_EQ(policies.size(), 3U);
  EXPECT_EQ(policies.at(0).at("nll").size(), 599U);
  EXPECT_EQ(policies.at(1).at("positions").at(1).as_integer(0, 1000), 301);
  EXPECT_NEAR(policies.at(1).at("perplexity").as_number(), std::exp(2.0), 1e-9);
  EXPECT_TRUE(policies.at(2).at("mean_nll").json().is_null());
}

TEST(PerplexityResults, AreShown) {
  const PerplexityReport report = perplexity_sample();
  const std::string table = to_table(report);
  EXPECT_THAT(table, HasSubstr("512 - 599      3.000          -"));
  EXPECT_THAT(table, HasSubstr("times the fastest       1.00      59.90"));
  EXPECT_EQ(test::xml_problem(to_svg(to_plot(report))), "");
  EXPECT_EQ(to_plot(report).y_axis, LinePlot::Axis::kLinear);
  PerplexityReport lost = report;
  for (ScoredToken& token : lost.curves[0].tokens) token.nll = 100;
  EXPECT_EQ(to_plot(lost).y_axis, LinePlot::Axis::kLogarithmic);
}

TEST(PerplexityResults, PoliciesThatDoNotFitStandBelow) {
  PerplexityReport report = perplexity_sample();
  report.curves[1].name = "streaming:sink=4,window=512,positions=cache";
  report.curves[1].description = "the first 4 and the last 508 tokens, cached, at positions in it";
  const std::string table = to_table(report, 50);
  EXPECT_THAT(table, HasSubstr("           positions      dense\n"));
  EXPECT_THAT(table, HasSubstr("           positions streaming:sink=4,window=512,p\n"));
  EXPECT_THAT(table, HasSubstr("                      first 4 and the last 508\n"));
  EXPECT_THAT(to_table(report), HasSubstr("positions      dense streaming:sink=4,window=512,posi"));
  std::istringstream lines(table.substr(0, table.find(report.curves[1].name)));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 50U) << line;
}

TEST(PerplexityPolicies, MayBeCacheMethods) {
  EXPECT_THAT(parse_policies("infinite:cap=512,slide=64"),
              ElementsAre(ComparedPolicy(CacheMethod(SlideMethod{.cap = 512, .slide = 64}))));
  EXPECT_THAT(parse_policies("dense,infinite"),
              ElementsAre(ComparedPolicy(PerplexityPolicy::kDense),
                          ComparedPolicy(CacheMethod(SlideMethod{}))));
  EXPECT_NO_THROW(require_scores_texts(SlideMethod{}));
  EXPECT_THROW(require_scores_texts(SnapKvMethod{}), Error);
  EXPECT_THROW(require_scores_texts(H2oMethod{}), Error);
  EXPECT_THROW(require_scores_texts(QuestMethod{}), Error);
}

// Two flags with one policy each computed it twice.
TEST(PerplexityPolicies, AreThereOnce) {
  EXPECT_NO_THROW(require_different(parse_policies("dense,streaming")));
  EXPECT_THROW(require_different(parse_policies("dense,streaming,dense")), Error);
  EXPECT_NO_THROW(require_different({CacheMethod(SlideMethod{.cap = 512, .slide = 64}),
                                     CacheMethod(SlideMethod{.cap = 256, .slide = 64})}));
  EXPECT_THROW(require_different({CacheMethod(SlideMethod{}), CacheMethod(SlideMethod{})}), Error);
}

TEST(PerplexityPolicies, HaveNamesAndRoles) {
  EXPECT_THAT(parse_policies("streaming,dense"),
              ElementsAre(ComparedPolicy(PerplexityPolicy::kStreaming),
                          ComparedPolicy(PerplexityPolicy::kDense)));
  for (const char* wrong : {"", "dense,", "Dense", "dense, duo", "window:windw=3"}) {
    EXPECT_THROW(parse_policies(wrong), Error) << wrong;
  }
  const HeadRoles duo = HeadRoles::all_retrieval(2, 2);
  const PolicyWindow window{.window = 100, .sink = 4};
  const HeadRoles streaming = roles_of(PerplexityPolicy::kStreaming, window, duo);
  EXPECT_EQ(streaming.n_retrieval(), 0);
  EXPECT_EQ(streaming.sink, 4);
  EXPECT_EQ(streaming.recent, 96);
  EXPECT_EQ(streaming.sink_positions, SinkPositions::kInCache);
  EXPECT_EQ(roles_of(PerplexityPolicy::kWindow, window, duo).recent, 100);
  EXPECT_EQ(roles_of(PerplexityPolicy::kStreamingAbsolute, window, duo).sink_positions,
            SinkPositions::kAbsolute);
  EXPECT_EQ(roles_of(PerplexityPolicy::kDense, window, duo), duo);
  const HeadRoles long_gen =
      roles_of(PerplexityPolicy::kLongGen, window, HeadRoles::all_retrieval(6, 2));
  EXPECT_EQ(long_gen.n_retrieval(), 2 * 2);
  EXPECT_EQ(long_gen.recent, 96);
  EXPECT_EQ(describe(PerplexityPolicy::kLongGen, window, long_gen),
            "layers 2 to 3 every token, the others the first 4 and the last 96");
  EXPECT_THROW(roles_of(PerplexityPolicy::kStreaming, {.window = 4, .sink = 4}, duo), Error);
  // Its sink says nothing: one that no window holds is no reason to refuse it.
  EXPECT_EQ(roles_of(PerplexityPolicy::kWindow, {.window = 4, .sink = 4}, duo).recent, 4);
  EXPECT_THROW(roles_of(PerplexityPolicy::kRecompute, window, duo), Error);
}

}  // namespace
}  // namespace longhaul
