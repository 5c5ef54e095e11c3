#include "tools/bench/bench_session.h"

#include <gtest/gtest.h>

#include "kernels/probes/cpu_probes.h"

namespace longhaul::bench {
namespace {

TEST(BenchSession, RanksOfAHostShareTheMemoryThatIsReadToMeasureIt) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  EXPECT_EQ(cpu_read_bytes({}), CpuProbes::kReadBytes);
  EXPECT_EQ(cpu_read_bytes({"a"}), CpuProbes::kReadBytes);
  EXPECT_EQ(cpu_read_bytes({"a", "b", "c"}), CpuProbes::kReadBytes);
  EXPECT_EQ(cpu_read_bytes({"a", "b", "a"}), CpuProbes::kReadBytes / 2);
  EXPECT_EQ(cpu_read_bytes(std::vector<std::string>(100, "a")), 64 * kMiB);
}

}  // namespace
}  // namespace longhaul::bench
