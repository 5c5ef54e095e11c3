// In builds without oneDNN.
#include "base/error.h"
#include "tests/bench/onednn_int8.h"

namespace longhaul::bench {

std::function<void()> onednn_int8_product(std::int64_t, std::int64_t, std::int64_t) {
  throw Error(ErrorCode::kUnsupported, "this build has no oneDNN");
}

}  // namespace longhaul::bench
