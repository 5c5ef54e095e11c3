#include "kernels/cpu/meanwhile.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"

namespace longhaul {
namespace {

constexpr std::int64_t kTasks = 40;

void compute_a_while(std::int64_t /*task*/) {
  std::this_thread::sleep_for(Meanwhile::kInterval * 4);
}

class MeanwhileTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_kernel_threads(GetParam()); }
  void TearDown() override { set_kernel_threads(0); }
};

TEST_P(MeanwhileTest, RunsBetweenTasksOnTheCallingThread) {
  std::int64_t calls = 0;
  bool on_caller = true;
  {
    const auto caller = std::this_thread::get_id();
    const Meanwhile work([&] {
      ++calls;
      on_caller = on_caller && std::this_thread::get_id() == caller;
    });
    parallel_for(kTasks, compute_a_while);
  }
  // The caller does its share of the tasks, at the very least one of them.
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, kTasks);
  EXPECT_TRUE(on_caller);
  const std::int64_t before = calls;
  parallel_for(kTasks, compute_a_while);
  EXPECT_EQ(calls, before) << "after its end";
}

TEST_P(MeanwhileTest, WaitsForTheInterval) {
  std::int64_t calls = 0;
  const Meanwhile work([&] { ++calls; });
  Stopwatch watch;
  parallel_for(100'000, [](std::int64_t) {});
  const double intervals =
      watch.seconds() / std::chrono::duration<double>(Meanwhile::kInterval).count();
  EXPECT_LE(static_cast<double>(calls), intervals + 1);
}

TEST_P(MeanwhileTest, WhatItThrowsTheOperatorThrows) {
  const Meanwhile work([] { throw std::runtime_error("a rank has gone"); });
  EXPECT_THROW(parallel_for(kTasks, compute_a_while), std::runtime_error);
}

TEST_P(MeanwhileTest, InnerOneReplacesOuterOne) {
  std::int64_t outer_calls = 0;
  std::int64_t inner_calls = 0;
  const Meanwhile outer([&] { ++outer_calls; });
  {
    const Meanwhile inner([&] { ++inner_calls; });
    parallel_for(kTasks, compute_a_while);
  }
  EXPECT_EQ(outer_calls, 0);
  EXPECT_GE(inner_calls, 1);
  parallel_for(kTasks, compute_a_while);
  EXPECT_GE(outer_calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Threads, MeanwhileTest, testing::Values(1, 3));

}  // namespace
}  // namespace longhaul
