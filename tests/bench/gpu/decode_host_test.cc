// A decode step far into a document is a replay of the step before, and what it uploads does not
// depend on how far.
#include "tests/bench/gpu/decode_host.h"

#include <gtest/gtest.h>

#include "tests/bench/gpu/filled_model.h"
#include "tests/cuda_on_host/device_memory.h"

namespace longhaul::bench {
namespace {

TEST(DecodeOffTheHost, IsTheSameAtAnyLength) {
  cuda_on_host::leave_work_undone(std::size_t{8} << 30U);
  const ModelSpec spec = narrow_model(2);
  const HeadTable heads = every_other_streaming(spec);
  const DecodeHostTimes near = time_decode_host(spec, heads, 33000, 1);
  for (const std::int64_t n_tokens : {70000, 400000}) {
    const DecodeHostTimes far = time_decode_host(spec, heads, n_tokens, 1);
    EXPECT_EQ(far.n_replays, far.n_steps) << n_tokens;
    EXPECT_EQ(far.n_commands, near.n_commands);
    EXPECT_EQ(far.n_bytes, near.n_bytes);
  }
  EXPECT_EQ(near.n_replays, near.n_steps);
}

}  // namespace
}  // namespace longhaul::bench
