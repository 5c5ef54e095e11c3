#include "cluster/comm/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

namespace longhaul {
namespace {

template <typename E>
Verdict verdict_of_thrown(const E& error) {
  return verdict_of(std::make_exception_ptr(error), 3);
}

TEST(Verdict, KeepsCodeAndMessageOfErrors) {
  EXPECT_EQ(verdict_of_thrown(Error(ErrorCode::kIo, "disk is full")),
            failed(3, ErrorCode::kIo, "disk is full"));
}

TEST(Verdict, NamesOtherExceptions) {
  EXPECT_EQ(verdict_of_thrown(std::bad_alloc()).code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(verdict_of_thrown(std::runtime_error("odd")), failed(3, ErrorCode::kInternal, "odd"));
  EXPECT_EQ(verdict_of_thrown(42).code, ErrorCode::kInternal);
}

TEST(Verdict, ThrowsWithTheRank) {
  EXPECT_NO_THROW(throw_if_failed({}));
  try {
    throw_if_failed(failed(2, ErrorCode::kCuda, "launch failed"));
    ADD_FAILURE() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCuda);
    EXPECT_STREQ(error.what(), "rank 2: launch failed");
  }
}

TEST(Verdict, CodesFromTheWireAreChecked) {
  EXPECT_EQ(error_code_from_wire(static_cast<int>(ErrorCode::kIo)), ErrorCode::kIo);
  EXPECT_EQ(error_code_from_wire(-1), ErrorCode::kInternal);
  EXPECT_EQ(error_code_from_wire(1000), ErrorCode::kInternal);
}

TEST(FailureFlag, TheFirstVerdictStays) {
  FailureFlag flag;
  EXPECT_FALSE(flag.raised());
  EXPECT_TRUE(flag.verdict().ok);
  EXPECT_TRUE(flag.raise(failed(1, ErrorCode::kIo, "first")));
  EXPECT_FALSE(flag.raise(failed(2, ErrorCode::kIo, "second")));
  EXPECT_TRUE(flag.raised());
  EXPECT_EQ(flag.verdict(), failed(1, ErrorCode::kIo, "first"));
}

}  // namespace
}  // namespace longhaul
