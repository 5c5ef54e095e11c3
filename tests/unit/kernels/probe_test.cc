// A bound of reading is worth nothing if the probe leaves out some of what it says it has read.
#include <vector>

#include "kernels/cpu/isa/kernels.h"
#include "tests/unit/kernels/each_isa.h"

namespace longhaul::test {
namespace {

class ReadProbe : public EachIsa {};
LONGHAUL_WITH_EACH_ISA(ReadProbe);

TEST_P(ReadProbe, ReadsEveryNumberOnceInEitherOrder) {
  const std::vector<float> numbers(4096, 1.0F);
  for (const cpu::ReadOrder order : {cpu::ReadOrder::kOneStream, cpu::ReadOrder::kFourStreams}) {
    const cpu::ProbeResult read =
        cpu::kernels().probe_read(numbers.data(), static_cast<std::int64_t>(numbers.size()), order);
    EXPECT_EQ(read.amount, 4 * 4096);
    EXPECT_EQ(read.value, 4096.0F);
  }
}

}  // namespace
}  // namespace longhaul::test
