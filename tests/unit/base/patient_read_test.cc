// Reading on a thread that is left behind where the file does not come.
#include "base/patient_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

// A read that goes on until its owner is gone, as of a disk that does not answer.
class HungRead {
 public:
  ~HungRead() {
    release_.set_value();
    while (!*has_ended_) std::this_thread::sleep_for(1ms);
  }
  LeavableRead read() {
    return [released = released_, ended = has_ended_, left = was_left_](const auto& is_left) {
      released.wait();
      *left = is_left();
      *ended = true;
      return std::string("too late");
    };
  }
  Error error_of(const ReadPatience& patience) {
    try {
      read_patiently("archive.txt", read(), patience);
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::kInternal, "nothing was thrown"};
  }
  std::shared_ptr<std::atomic<bool>> was_left_ = std::make_shared<std::atomic<bool>>(false);

 private:
  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future().share();
  std::shared_ptr<std::atomic<bool>> has_ended_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(PatientRead, GivesWhatIsReadAndThrowsWhatIsThrown) {
  const test::TemporaryFolder folder;
  replace_file(folder.path() / "a", "abc");
  EXPECT_EQ(read_file_patiently(folder.path() / "a", 3, {}), "abc");
  try {
    read_file_patiently(folder.path() / "a", 2, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
}

// A document on a server that did not answer held the end of its job.
TEST(PatientRead, AStopLeavesAReadThatHangs) {
  std::shared_ptr<std::atomic<bool>> was_left;
  {
    HungRead hung;
    was_left = hung.was_left_;
    std::atomic<bool> stops = false;
    const std::jthread later([&] {
      std::this_thread::sleep_for(300ms);
      stops = true;
    });
    const Error error = hung.error_of({.stop_requested = [&] { return stops.load(); }});
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    EXPECT_TRUE(stops);
  }
  EXPECT_TRUE(*was_left) << "who comes back hears that nobody waits";
}

TEST(PatientRead, IsSpokenOfAndEndsAtTheLimit) {
  HungRead hung;
  testing::internal::CaptureStderr();
  const Error error =
      hung.error_of({.say_every = 1s, .limit = 1700ms, .limit_name = "--step-timeout"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              StartsWith("longhaul: still waiting for archive.txt ("));
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr("archive.txt has not been read for "));
  EXPECT_THAT(error.what(), HasSubstr(" s (--step-timeout): its disk or server does not answer"));
}

}  // namespace
}  // namespace longhaul
