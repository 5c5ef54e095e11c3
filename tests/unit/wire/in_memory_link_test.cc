#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "cluster/wire/link.h"

namespace longhaul {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(InMemoryLink, KeepsTheOrderOfCommandsAndResults) {
  LinkPair link = make_in_memory_link();
  std::thread worker([end = std::move(link.worker)]() mutable {
    while (auto command = end->next()) {
      if (std::holds_alternative<Shutdown>(*command)) break;
      StepDone done;
      done.kv_bytes_in_use =
          static_cast<std::size_t>(std::get<OpenSequence>(*command).sequence.value);
      end->answer(done);
    }
  });
  for (std::int64_t i = 0; i < 100; ++i) link.coordinator->send(OpenSequence{SequenceId{i}, {}});
  for (std::size_t i = 0; i < 100; ++i) {
    const StepResult result = link.coordinator->receive(deadline_in(seconds(60)));
    EXPECT_EQ(std::get<StepDone>(result).kv_bytes_in_use, i);
  }
  link.coordinator->send(Shutdown{});
  worker.join();
}

TEST(InMemoryLink, DeadlineEndsTheWait) {
  LinkPair link = make_in_memory_link();
  EXPECT_EQ(code_of([&] { link.coordinator->receive(deadline_in(milliseconds(1))); }),
            ErrorCode::kTimeout);
}

// A worker that ran out of memory between two steps was a lost one, with another status.
TEST(InMemoryLink, AWorkerThatLeavesSaysWhy) {
  LinkPair link = make_in_memory_link();
  link.worker->answer(
      StepFailed{.code = ErrorCode::kOutOfMemory, .message = "full", .ends_job = true});
  EXPECT_EQ(code_of([&] { link.coordinator->receive(deadline_in(seconds(60))); }),
            ErrorCode::kOutOfMemory);
}

TEST(InMemoryLink, WorkerThatIsGoneWakesTheCoordinator) {
  LinkPair link = make_in_memory_link();
  std::thread worker([end = std::move(link.worker)]() mutable {
    end->answer(StepFailed{ErrorCode::kOutOfMemory, "full"});
    end.reset();
  });
  // The last answer is still delivered; after it, there is nobody.
  EXPECT_EQ(std::get<StepFailed>(link.coordinator->receive(deadline_in(seconds(60)))).message,
            "full");
  EXPECT_EQ(code_of([&] { link.coordinator->receive(deadline_in(seconds(60))); }),
            ErrorCode::kPeerFailed);
  worker.join();
  EXPECT_EQ(code_of([&] { link.coordinator->send(Shutdown{}); }), ErrorCode::kPeerFailed);
}

TEST(InMemoryLink, CoordinatorThatIsGoneWakesTheWorker) {
  LinkPair link = make_in_memory_link();
  std::thread worker([end = std::move(link.worker)] {
    EXPECT_FALSE(end->next().has_value());
    end->answer(StepDone{});  // goes nowhere, harms nobody
  });
  link.coordinator.reset();
  worker.join();
}

}  // namespace
}  // namespace longhaul
