// What people and programs read of a job's status: metrics, JSON, page, text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tools/status/status_forms.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::Not;

JobStatus example() {
  JobStatus status{.version = "1.2.3", .model = "models/a\"b\\c", .state = "running"};
  status.plan = "abc";
  status.seconds = 90;
  status.run.n_requests = 10;
  status.run.n_ok = 3;
  status.run.n_failed = 1;
  status.run.n_running = 2;
  status.run.n_prefilled = 5000;
  status.run.prefill_seconds = 10;
  status.run.finish_reasons["stop"] = 3;
  status.run.n_documents = 2;
  status.run.documents = {{.group = 0, .n_tokens = 1000, .n_read = 250, .n_bytes = 4000},
                          {.group = 1, .n_bytes = 99}};
  status.documents = {"<img src=x onerror='a()'>&\033[2J.txt", "häfen.txt"};
  status.run.steps.add(0.2);
  status.run.steps.add(20000);
  RankNow rank;
  rank.status = {.rank = {0}, .host = "node<1>", .connected = true, .phase = {}};
  rank.status.phase = {.activity = Activity::kWaiting, .step = 4, .layer = {2}, .peer = {1}};
  rank.status.report = RankReport{.rank = {0},
                                  .phase_seconds = {{"attend", 3.0}, {"ring wait", 1.0}},
                                  .ring_wait_seconds = 1.0,
                                  .sent_bytes = {{"keys", 700}, {"queries", 300}},
                                  .weight_bytes = 1 << 20,
                                  .kv_retrieval_bytes = 100,
                                  .kv_streaming_bytes = 50};
  rank.planned = {
      .host = "node<1>", .bytes = {.weights = 1 << 20, .limit = 1 << 30}, .kv_limit_bytes = 600};
  status.ranks = {rank};
  status.failures = {{"id<1>", "out_of_memory", "line\nbreak"}};
  return status;
}

TEST(StatusMetrics, HaveNamesTypesAndEscapedLabels) {
  const std::string text = status_metrics(example());
  EXPECT_THAT(text,
              HasSubstr("# TYPE longhaul_num_requests_waiting gauge\n"
                        "longhaul_num_requests_waiting{model_name=\"models/a\\\"b\\\\c\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("finished_reason=\"stop\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_ring_wait_seconds_sum{model_name=\"models/a\\\"b\\\\c\","
                              "rank=\"0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(",rank=\"0\",kind=\"keys\"} 700\n"));
  EXPECT_THAT(text, HasSubstr("rank=\"0\"} 0.25\n"));  // of the planned caches
  EXPECT_THAT(text, HasSubstr("longhaul_eta_seconds{model_name=\"models/a\\\"b\\\\c\"} NaN\n"));
}

TEST(StatusMetrics, HistogramsCountUpwards) {
  const std::string text = status_metrics(example());
  EXPECT_THAT(text, HasSubstr("le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_ring_step_seconds_bucket{model_name=\"models/a\\\"b\\\\c\","
                              "le=\"0.25\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_ring_step_seconds_bucket{model_name=\"models/a\\\"b\\\\c\","
                              "le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("longhaul_ring_step_seconds_count{model_name=\"models/a\\\"b\\\\c\"} "
                              "2\n"));
}

TEST(StatusJson, SaysWhatIsKnownAndNothingElse) {
  const std::string text = to_text(status_json(example()));
  const Json parsed = parse_json(text, "status");
  const JsonField status(parsed, "status");
  EXPECT_TRUE(status.at("eta_seconds").json().is_null());
  EXPECT_EQ(status.at("requests").at("running").as_integer(0, 9), 2);
  EXPECT_EQ(status.at("documents").at("next").at(0).at("tokens_read").as_integer(0, 999), 250);
  EXPECT_FALSE(status.at("documents").at("next").at(1).find("tokens"));
  const JsonField rank = status.at("ranks").at(0);
  EXPECT_EQ(rank.at("phase").at("waits_for_rank").as_integer(0, 9), 1);
  EXPECT_EQ(rank.at("memory_bytes").at("kv").as_integer(0, 999), 150);
  EXPECT_EQ(rank.at("sent_bytes").at("queries").as_integer(0, 999), 300);
}

TEST(StatusPage, EscapesWhatUsersWrote) {
  const std::string page = status_page(example(), "0123");
  EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=&apos;a()&apos;&gt;&amp; [2J.txt"));
  EXPECT_THAT(page, HasSubstr("models/a&quot;b\\c"));
  EXPECT_THAT(page, HasSubstr("node&lt;1&gt;"));
  EXPECT_THAT(page, HasSubstr("id&lt;1&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("<script nonce=\"0123\">"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST(StatusPage, LeavesMarksAloneThatUsersWrote) {
  JobStatus status = example();
  status.documents[0] = "{{nonce}}{{view}}";
  const std::string page = status_page(status, "0123");
  EXPECT_THAT(page, HasSubstr("{{nonce}}{{view}}"));
}

TEST(StatusText, FitsTheTerminalAndHasNoEscapes) {
  for (const std::size_t width : {60, 80, 200}) {
    std::istringstream lines(status_text(example(), width));
    for (std::string line; std::getline(lines, line);) {
      std::size_t n = 0;
      for (const char c : line) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      EXPECT_LE(n, width) << line;
      EXPECT_EQ(line.find('\033'), std::string::npos);
    }
  }
  const std::string text = status_text(example(), 80);
  EXPECT_THAT(text, HasSubstr("requests 4/10, 1 failed, 2 running"));
  EXPECT_THAT(text, HasSubstr("25% #####..............."));
  EXPECT_THAT(text, HasSubstr("häfen.txt"));
  EXPECT_THAT(text, HasSubstr("L2 waiting for 1"));
  EXPECT_EQ(without_controls("a\xc2\x9b"
                             "31m\x7f"),
            "a?31m?");
}

}  // namespace
}  // namespace longhaul
