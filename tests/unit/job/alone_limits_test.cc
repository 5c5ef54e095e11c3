// One rank alone once took more memory than its control group had, and was killed without a word.
#include "tools/job/alone_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/paths.h"
#include "tools/job/run_session.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class AloneLimitsTest : public testing::Test {
 protected:
  AloneLimitsTest() {
    AnswerConfig answers;
    answers.model = test::example_path("model").string();
    session_ = open_session(config_, answers);
    workload_ = formats_of(config_, session_->weights->weight_dtype());
    workload_.document_tokens = 150'000;  // 586 MiB of caches in bf16
    workload_.tail_tokens = 200;
    workload_.chunk_len = 2048;
  }
  AloneLimits limits(std::int64_t free_bytes) const {
    return limits_of_one_rank(*session_, config_, workload_, free_bytes);
  }
  std::string refusal(std::int64_t free_bytes) const {
    try {
      limits(free_bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      return error.what();
    }
    return "it fits";
  }
  JobConfig config_;
  std::optional<RunSession> session_;
  Workload workload_;
};

TEST_F(AloneLimitsTest, ADocumentThatDoesNotFitIsRefusedBeforeItIsRead) {
  EXPECT_THAT(refusal(120 * kMiB), HasSubstr("a document of 150000 tokens does not fit"));
  EXPECT_THAT(refusal(120 * kMiB), HasSubstr("120 MiB are free"));
  // Where smaller types are enough, they are named.
  EXPECT_THAT(refusal(450 * kMiB), HasSubstr("--cache-type-k int8 --cache-type-v int8"));
  config_.kv_limit_bytes = 50 * kMiB;  // the user's own limit: requests that need more will say so
  EXPECT_EQ(refusal(450 * kMiB), "it fits");
}

TEST_F(AloneLimitsTest, ChunksAreShortenedUntilItFits) {
  EXPECT_EQ(limits(4096 * kMiB).chunk_len, 2048);
  EXPECT_LT(limits(4096 * kMiB).kv_bytes, static_cast<std::size_t>(4096 * kMiB));
  std::int64_t shortest = 2048;
  for (std::int64_t free = 700; free > 0 && refusal(free * kMiB) == "it fits"; free -= 2)
    shortest = limits(free * kMiB).chunk_len;
  EXPECT_LT(shortest, 2048);
  config_.chunk_len = 2048;  // asked for: it does not give way
  EXPECT_EQ(limits(4096 * kMiB).chunk_len, 2048);
}

}  // namespace
}  // namespace longhaul
