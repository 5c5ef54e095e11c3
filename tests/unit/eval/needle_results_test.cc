// What a needle evaluation writes: the grid as CSV, a table and a picture, every question as JSON.
#include "tools/eval/needle_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/eval/xml_check.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

NeedleReport needle_sample() {
  NeedleRun run{.name = "2 of 4, \"so\"", .roles = HeadRoles::all_retrieval(2, 2)};
  const auto add = [&](std::int64_t length, double depth, bool is_right) {
    run.cases.push_back({.length = length,
                         .depth = depth,
                         .key = "k",
                         .expected = "1.",
                         .answer = "a\nb",
                         .is_right = is_right});
  };
  add(1024, 0, true);
  add(1024, 0, false);
  add(1024, 0.5, true);
  add(1000, 0.5, false);
  run.readings.push_back({.length = 1024, .prefill_seconds = 1.5, .kv_bytes = 77});
  return {.title = "T",
          .settings = JsonObject{{"seed", 1}},
          .lengths = {1000, 1024},
          .depths = {0, 0.5},
          .runs = {run}};
}

TEST(NeedleResults, CountCells) {
  const NeedleReport report = needle_sample();
  const NeedleRun& run = report.runs[0];
  EXPECT_EQ(score_of(run).n_asked, 4);
  EXPECT_EQ(score_of(run).n_right, 2);
  EXPECT_EQ(score_of(run, 1024, 0).rate(), 0.5);
  EXPECT_EQ(score_of(run, 1000, 0).rate(), std::nullopt);
}

TEST(NeedleResults, AreWrittenAsCsv) {
  EXPECT_EQ(to_csv(needle_sample()),
            "run,length,depth,asked,right,exact_match\n"
            "\"2 of 4, \"\"so\"\"\",1000,0,0,0,\n"
            "\"2 of 4, \"\"so\"\"\",1000,0.5,1,0,0\n"
            "\"2 of 4, \"\"so\"\"\",1024,0,2,1,0.5\n"
            "\"2 of 4, \"\"so\"\"\",1024,0.5,1,1,1\n");
}

TEST(NeedleResults, AreWrittenAsJson) {
  const Json json = parse_json(to_text(to_json(needle_sample())), "report");
  const JsonField report(json, "report");
  EXPECT_TRUE(report.at("complete").as_bool());
  const JsonField run = report.at("runs").at(0);
  EXPECT_EQ(run.at("exact_match").as_number(), 0.5);
  EXPECT_EQ(run.at("cases").size(), 4U);
  EXPECT_EQ(run.at("cases").at(1).at("answer").as_string(), "a\nb");
  EXPECT_EQ(run.at("documents").at(0).at("kv_bytes").as_integer(0, 100), 77);
}

TEST(NeedleResults, AreShown) {
  const NeedleReport report = needle_sample();
  const std::string table = to_table(report);
  EXPECT_THAT(table, HasSubstr("T: exact match; 2 of 4 answers right"));
  EXPECT_THAT(table, HasSubstr("         0 %        -    0.500\n"));
  EXPECT_THAT(table, HasSubstr("        50 %    0.000    1.000\n"));
  EXPECT_EQ(test::xml_problem(to_svg(to_heat_map(report))), "");
  EXPECT_EQ(test::xml_problem(to_svg(to_heat_map(NeedleReport{}))), "");
}

TEST(NeedleResults, ColumnsThatDoNotFitStandBelow) {
  NeedleReport report = needle_sample();
  report.title = "A long title";
  EXPECT_EQ(to_table(report, 24),
            "A long title: exact\n"
            "match; 2 of 4 answers\n"
            "right\n"
            "\n"
            "             document length (tokens)\n"
            "       depth     1000\n"
            "         0 %        -\n"
            "        50 %    0.000\n"
            "\n"
            "             document length (tokens)\n"
            "       depth       1K\n"
            "         0 %    0.500\n"
            "        50 %    1.000\n");
}

TEST(NeedleResults, OfEveryHeadAreATableOfHeads) {
  NeedleReport report = needle_sample();
  NeedleRun run = report.runs[0];
  report.runs.clear();
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    run.head = HeadId{layer, 1};
    if (layer == 1) run.cases.resize(1);
    report.runs.push_back(run);
  }
  const HeatMap map = to_heat_map(report);
  EXPECT_EQ(map.rows, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(map.values, (std::vector<std::optional<double>>{std::nullopt, 0.5, std::nullopt, 1.0}));
}

}  // namespace
}  // namespace longhaul
