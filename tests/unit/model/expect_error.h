// Checks that a call throws longhaul::Error with a code and a message.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace longhaul::test {

// The message that `call` throws with `code`; a failure of the test when it does not.
template <typename Call>
std::string message_of(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(name_of(error.code()), name_of(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown; expected " << name_of(code);
  return {};
}

}  // namespace longhaul::test
