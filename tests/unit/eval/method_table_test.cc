// The table of methods: what a row takes from a run, and how it is written.
#include "tools/eval/method_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace longhaul {
namespace {

using testing::HasSubstr;

MethodTable table_of_one_run() {
  NeedleRun run{.name = "snapkv:capacity=10,window=2"};
  run.readings = {
      {.length = 100, .document = 0, .prefill_seconds = 2, .answer_seconds = 1, .kv_bytes = 4096},
      {.length = 100, .document = 1, .prefill_seconds = 3, .answer_seconds = 1, .kv_bytes = 2048}};
  run.cases.resize(4);
  run.cases[1].is_right = true;
  MethodRow row = row_of(run);
  row.budget = 10;
  row.kv_predicted = 4096;
  return {.settings = Json(JsonObject{}), .rows = {row}};
}

TEST(MethodTable, ARowSumsUpARun) {
  const MethodRow row = table_of_one_run().rows.at(0);
  EXPECT_EQ(row.length, 100);
  EXPECT_EQ(row.n_documents, 2);
  EXPECT_EQ(row.score.n_right, 1);
  EXPECT_EQ(row.score.n_asked, 4);
  EXPECT_EQ(row.kv_bytes, 4096U);
  EXPECT_EQ(row.prefill_seconds, 5);
}

TEST(MethodTable, IsWrittenInThreeForms) {
  const MethodTable table = table_of_one_run();
  EXPECT_THAT(to_csv(table),
              HasSubstr("\n\"snapkv:capacity=10,window=2\",100,10,4,1,4096,4096,40.0,0.5000,,\n"));
  EXPECT_THAT(to_text(table), HasSubstr("1/4"));
  EXPECT_THAT(to_text(to_json(table)), HasSubstr(R"("kv_bytes":4096,"kv_bytes_predicted":4096)"));
}

// Methods with their parameters are longer than what is left of a line of 80 columns.
TEST(MethodTable, MethodsStandAboveTheirNumbersWhereLinesWouldBeTooWide) {
  MethodTable table = table_of_one_run();
  EXPECT_THAT(to_text(table), HasSubstr("  snapkv:capacity=10,window=2\n"));
  table.rows[0].method =
      "snapkv:capacity=10,ratio=0,window=2,kernel=5,pool=avg,group=mean,"
      "after=document";
  table.rows[0].perplexity = 12345.6;
  table.rows[0].answer_tokens_per_s = 12345.6;
  const std::string text = to_text(table, 80);
  EXPECT_THAT(text, HasSubstr("\n" + table.rows[0].method + "\n    100      10     1/4 "));
  EXPECT_THAT(text, HasSubstr("    12346    12346\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(MethodTable, OfATextHasPerplexitiesToo) {
  MethodTable table = table_of_one_run();
  EXPECT_THAT(to_text(table), testing::Not(HasSubstr("ppl")));
  EXPECT_TRUE(perplexity_plot(table).series.empty());
  table.rows[0].perplexity = 12.5;
  table.rows[0].answer_tokens_per_s = 8;
  EXPECT_THAT(to_text(table), HasSubstr("12.5"));
  EXPECT_THAT(to_csv(table), HasSubstr(",12.5000,8.0000\n"));
  EXPECT_THAT(perplexity_plot(table).series.at(0).points,
              testing::ElementsAre(testing::Pair(10, 12.5)));
}

TEST(MethodTable, IsDrawnWithACurveForEachMethodAndLength) {
  MethodTable table = table_of_one_run();
  table.rows[0].asked_for = "snapkv";
  table.rows.push_back(table.rows[0]);
  table.rows[1].budget = 5;
  table.rows.push_back(table.rows[0]);
  table.rows[2].length = 200;
  const LinePlot plot = answers_plot(table);
  EXPECT_EQ(answers_plot(table_of_one_run()).series.at(0).name, "");
  ASSERT_EQ(plot.series.size(), 2U);
  EXPECT_EQ(plot.series[0].name, "snapkv, 100 tokens");
  EXPECT_THAT(plot.series[0].points,
              testing::ElementsAre(testing::Pair(5, 25), testing::Pair(10, 25)));
}

}  // namespace
}  // namespace longhaul
