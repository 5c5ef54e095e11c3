// What goes into a report for support, and what does not.
#include "tools/support_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/event_log.h"
#include "base/file.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SupportReport, LeavesOutWhatIsNoEvent) {
  const std::string events = known_events(
      "{\"ts\":\"t\",\"event\":\"start\"}\nA line of a "
      "document\n{\"text\":\"secret\"}\n{\"ts\":\"t\",");
  EXPECT_EQ(events, "{\"ts\":\"t\",\"event\":\"start\"}\n{\"lines_left_out\":3}\n");
}

TEST(SupportReport, LeavesOutMessagesOfFailedRequests) {
  const std::string status = status_without_messages(
      R"({"state":"running","errors":[{"custom_id":"a","code":"c","message":"the secret"}]})");
  EXPECT_THAT(status, HasSubstr(R"({"custom_id":"a","code":"c"})"));
  EXPECT_THAT(status, Not(HasSubstr("secret")));
  EXPECT_THROW(static_cast<void>(status_without_messages("[]")), Error);
}

TEST(SupportReport, NamesWhatIsMissing) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(write_support_report(folder.path() / "r",
                                    {.log_dir = folder.path(), .results = {}, .status = {}}),
               Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "r"));
  EXPECT_THROW(write_support_report(folder.path(), {.log_dir = {}, .results = {}, .status = {}}),
               Error);
}

// A folder with such a name was made, which nothing unpacks.
TEST(SupportReport, IsNoArchiveOfAnotherKind) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(is_report_archive(folder.path() / "r.tar.gz"));
  EXPECT_TRUE(is_report_archive("R.TGZ"));
  EXPECT_FALSE(is_report_archive(folder.path() / "report"));
  for (const char* name : {"r.zip", "r.tar", "r.tar.xz", "r.GZ", "r.7z"})
    EXPECT_THROW(static_cast<void>(is_report_archive(name)), Error) << name;
  EXPECT_THROW(static_cast<void>(is_report_archive(folder.path() / "none/r.tgz")), Error);
}

// The log is one for the process, so this is one test.
TEST(EventLog, WritesAFileForEachRankWithTimesOfOneClock) {
  const test::TemporaryFolder folder;
  log_event("dropped");
  open_event_log(folder.path() / "logs");
  log_event("early", {{"x", 1}});
  set_event_clock(5);
  set_event_rank(7, "node7");
  log_event("other", {}, 8);
  const std::string own = read_file(folder.path() / "logs/rank-0007.jsonl", 1 << 16);
  const Json event = parse_json(own, "log");
  const std::int64_t mono = std::get<std::int64_t>(event.find("mono_ns")->value());
  EXPECT_EQ(std::get<std::string>(event.find("ts")->value()), utc_text(mono + 5));
  EXPECT_EQ(std::get<std::string>(event.find("host")->value()), "node7");
  EXPECT_THAT(own, HasSubstr(R"("rank":7,"host":"node7","event":"early","x":1})"));
  EXPECT_THAT(read_file(folder.path() / "logs/rank-0008.jsonl", 1 << 16),
              HasSubstr(R"("event":"other"})"));
  EXPECT_EQ(utc_text(1'000'000'000'123'456'789), "2001-09-09T01:46:40.123456Z");
}

}  // namespace
}  // namespace longhaul
