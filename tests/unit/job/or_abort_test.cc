#include "tools/job/or_abort.h"

#include <gtest/gtest.h>

#include <array>
#include <new>

#include "base/error.h"
#include "cluster/comm/in_process.h"

namespace longhaul {
namespace {

// What `work`, after which ranks wait for each other, threw as an Error on each of them.
template <typename Work>
std::array<ErrorCode, 3> codes_of(const Work& work) {
  std::array<ErrorCode, 3> codes{};
  run_in_process(3, [&](Communicator& comm) {
    try {
      or_abort(comm, [&] {
        work(comm);
        comm.barrier();
      });
    } catch (const Error& error) {
      codes.at(static_cast<std::size_t>(comm.rank())) = error.code();
    } catch (const std::bad_alloc&) {
    }
  });
  return codes;
}

TEST(OrAbort, WhatNoTryCanMendWasTakenForALostRank) {
  const auto codes = codes_of([](Communicator& comm) {
    if (comm.rank() == 1) throw Error(ErrorCode::kInvalidArgument, "these heads cannot be run");
  });
  for (const ErrorCode code : codes) EXPECT_EQ(code, ErrorCode::kInvalidArgument);
}

TEST(OrAbort, LackOfMemoryOfOneRankWasTakenForALostRank) {
  const auto codes = codes_of([](Communicator& comm) {
    if (comm.rank() == 2) throw std::bad_alloc();
  });
  EXPECT_EQ(codes[0], ErrorCode::kOutOfMemory);
  EXPECT_EQ(codes[1], ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace longhaul
