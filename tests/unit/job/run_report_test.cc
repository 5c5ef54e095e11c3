#include "tools/job/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace longhaul {
namespace {

using testing::HasSubstr;

RankOutcome some_rank() {
  RankOutcome rank{.host = "node7", .report = {}, .planned = {}};
  rank.report.rank = {3};
  rank.report.phase_seconds = {{"embed", 0.25}, {"attend", 12.5}, {"trim", 0.0}};
  rank.report.ring_wait_seconds = 1.5;
  rank.report.sent_bytes = {{"keys", 3 << 20}, {"halo", 512}};
  rank.report.weight_bytes = 1 << 30;
  rank.report.kv_retrieval_peak_bytes = 3 << 19;
  rank.report.kv_streaming_peak_bytes = 5 << 17;  // at another step
  rank.report.kv_peak_bytes = 2 << 20;
  rank.planned.kv_retrieval = 3 << 20;
  rank.planned.kv_streaming = 1 << 20;
  rank.planned.limit = std::int64_t{1} << 32;
  rank.kv_limit_bytes = 5 << 20;
  return rank;
}

TEST(RunReport, TellsWhatARankDidBesideWhatWasPlanned) {
  const std::string text = report_table({some_rank()}, ReportForm::kLong);
  EXPECT_THAT(text, HasSubstr("3 node7"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB"));
  EXPECT_THAT(text, HasSubstr("2.00 MiB   5.00 MiB"));  // peak, and what it may be
  EXPECT_THAT(text, HasSubstr("attend 12.5, embed 0.25; keys 3.00 MiB, halo 512 B"));
}

TEST(RunReport, LongOnesFitATerminalOf80ColumnsToo) {
  const std::string text = report_table({some_rank()}, ReportForm::kLong, 80);
  EXPECT_THAT(text, HasSubstr("\n      seconds: attend 12.5, embed 0.25; sent: keys 3.00 MiB, "));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(RunReport, FitsATerminalOf80Columns) {
  RankOutcome rank = some_rank();
  rank.host = "a-host-with-a-very-long-name";
  rank.report.weight_bytes = rank.report.kv_peak_bytes = rank.kv_limit_bytes = std::int64_t{1023}
                                                                               << 30;
  rank.report.ring_wait_seconds = 123456.7;
  std::istringstream lines(report_table({rank}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(RunReport, ColumnsStayApartForShortAndLongWaits) {
  RankOutcome rank = some_rank();
  rank.report.ring_wait_seconds = 0.000304;
  EXPECT_THAT(report_table({rank}), HasSubstr("  0 B      0.0 s\n"));
  rank.report.ring_wait_seconds = 123456.7;
  EXPECT_THAT(report_table({rank}), HasSubstr("  0 B 123456.7 s\n")) << "no exponent";
}

TEST(RunReport, JsonHasEveryFigure) {
  const std::string text = to_text(report_json({some_rank()}));
  EXPECT_THAT(text, HasSubstr(R"("phase_seconds":{"embed":0.25,"attend":12.5,"trim":0})"));
  EXPECT_THAT(text, HasSubstr(R"("sent_bytes":{"keys":3145728,"halo":512})"));
  EXPECT_THAT(text, HasSubstr(R"("planned_bytes":{"weights":0,"kv_retrieval":3145728)"));
}

TEST(RunReport, WithoutAPlanNothingIsCompared) {
  RankOutcome rank = some_rank();
  rank.planned = {};
  EXPECT_THAT(to_text(report_json({rank})), testing::Not(HasSubstr("planned_bytes")));
}

// 2 heads see all, 6 a window; 10 blocks of 1 KiB would hold every token of a head.
KvReportArgs some_caches(const HeadTable& heads, const std::vector<RankOutcome>& ranks) {
  return {.heads = heads,
          .names = {.main = "snapkv:capacity=64", .streaming_heads = ""},
          .workload = {.document_tokens = 128,
                       .tail_tokens = 17,
                       .n_sequences = 1,
                       .k_type = KvType::kF32,
                       .v_type = KvType::kF32,
                       .block_size = 16},
          .kv = {KvType::kF32, KvType::kF32, 16, 8},
          .predicted = {.kv_retrieval = 3 << 10, .kv_streaming = 1 << 10},
          .ranks = ranks};
}

TEST(KvReport, TellsWhatEachMethodTakesBesideEveryToken) {
  HeadTable heads(2, 4, {.see = SeeSinkRecent{4, 60}});
  heads.set({0}, {1}, {});
  heads.set({1}, {2}, {});
  const std::vector<RankOutcome> ranks = {some_rank(), some_rank()};
  const std::vector<KvOfMethod> rows = kv_of_methods(some_caches(heads, ranks));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].method, "snapkv:capacity=64");
  EXPECT_EQ(rows[0].n_heads, 2);
  EXPECT_EQ(rows[0].predicted_bytes, 3 << 10);
  EXPECT_EQ(rows[0].everything_bytes, 2 * 10 << 10);
  EXPECT_EQ(rows[0].measured_bytes, 2 * (3 << 19));  // of both ranks
  EXPECT_EQ(rows[1].method, "first 4 and last 60");
  EXPECT_EQ(rows[1].measured_bytes, 2 * (5 << 17));
  EXPECT_EQ(rows[2].measured_bytes, 2 * (2 << 20)) << "not both peaks: they were at other steps";
  EXPECT_EQ(rows[2].predicted_bytes, 4 << 10);
  EXPECT_THAT(kv_table(rows), HasSubstr("4.00 MiB"));
  KvReportArgs args = some_caches(heads, ranks);
  args.names.streaming_heads = "razor:sink=4,window=64";
  EXPECT_EQ(kv_of_methods(args)[1].method, "razor:sink=4,window=64");
  EXPECT_THAT(kv_table(kv_of_methods(args), 60),
              HasSubstr("  razor:sink=4,\n" + std::string(46, ' ') + "window=64\n"));
}

TEST(KvReport, OfOneMethodSaysWhatItTook) {
  const HeadTable heads(2, 4, {.see = SeeSinkRecent{4, 60}});
  const std::vector<RankOutcome> ranks = {some_rank()};
  KvReportArgs args = some_caches(heads, ranks);
  args.names.main = "streaming:sink=4,window=64";
  const std::vector<KvOfMethod> rows = kv_of_methods(args);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].method, args.names.main);
  EXPECT_EQ(rows[0].measured_bytes, 5 << 17);
  args.names.main = "";
  EXPECT_EQ(kv_of_methods(args)[0].method, "first 4 and last 60");
}

}  // namespace
}  // namespace longhaul
