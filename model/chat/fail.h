// How the functions, filters and operators of templates refuse what they are given.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace longhaul::chat {

// What a template does wrong where it is rendered; whoever runs the statement adds the line (Error,
// kInvalidArgument).
[[noreturn]] inline void fail(std::string_view reason) {
  throw Error(ErrorCode::kInvalidArgument, std::string(reason));
}

}  // namespace longhaul::chat
