#include "coordinator/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(PrefillCost, FindsBothParts) {
  PrefillCost cost;
  const auto truth = [](double n, double history) {
    return 1e-3 * n + 1e-6 * n * (history + n / 2);
  };
  for (std::int64_t h = 0; h < 10000; h += 500)
    cost.add(500, h, truth(500, static_cast<double>(h)));
  EXPECT_NEAR(cost.seconds_for(90000, 10000), truth(90000, 10000), 1e-6 * truth(90000, 10000));
}

TEST(PrefillCost, IsNeverNegative) {
  PrefillCost cost;
  EXPECT_EQ(cost.seconds_for(100, 0), 0);
  cost.add(100, 0, 1.0);
  EXPECT_NEAR(cost.seconds_for(200, 0), 2.0, 1e-12);
  cost.add(100, 1000, 0.5);  // faster later: noise
  EXPECT_GE(cost.seconds_for(1000, 100000), 0);
}

TEST(Progress, ShowsWhatWasDone) {
  Progress progress({.group_bytes = {4000, 8000, 0}, .n_requests = 4});
  EXPECT_LT(progress.eta_seconds(), 0);
  progress.group_prepared(1000);
  progress.set_unread({{0, 1000}});
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 0/2  requests 0/4"));
  progress.sent(PrefillChunk{SequenceId{0}, std::vector<std::int32_t>(1000)});
  StepDone step;
  step.kv_bytes_in_use = 1 << 20;
  step.seconds = 2;
  progress.received(step);
  progress.set_unread({});
  EXPECT_NEAR(progress.eta_seconds(), 4.0, 1e-9);  // 8000 bytes left, 4 bytes a token
  progress.request_ended(true, 5);
  progress.request_ended(false, 0);
  EXPECT_THAT(progress.line(), testing::HasSubstr("documents 1/2  requests 2/4 (1 failed)"));
  EXPECT_THAT(progress.line(), testing::HasSubstr("prefill 1000 tokens, 500/s"));
  EXPECT_THAT(progress.line(), testing::HasSubstr("kv 1.0 MiB"));
}

TEST(Progress, TellsTheTimeLeftOnANarrowTerminal) {
  Progress progress({.group_bytes = {4000, 4000}, .n_requests = 4});
  progress.group_prepared(1000);
  progress.sent(PrefillChunk{.sequence = SequenceId{1}, .tokens = std::vector<std::int32_t>(1000)});
  StepDone done;
  done.seconds = 2;
  progress.received(done);
  const std::string whole = progress.line();
  for (std::size_t width = 20; width <= 120; ++width) {
    const std::string line = progress.line(width);
    EXPECT_TRUE(line.size() <= width || line == "requests 0/4") << line;
    if (width < 25) continue;
    EXPECT_THAT(line, testing::HasSubstr("ETA ")) << width;
  }
  EXPECT_EQ(progress.line(whole.size()), whole);
  EXPECT_THAT(progress.summary(), testing::Not(testing::HasSubstr("kv ")));
  EXPECT_THAT(progress.summary(), testing::Not(testing::HasSubstr("ETA")));
}

}  // namespace
}  // namespace longhaul
