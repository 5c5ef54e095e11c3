// A head profile: the TSV, a zero byte, the configuration.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/read_inputs.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto zero = static_cast<std::size_t>(std::find(data, data + size, 0) - data);
  const std::size_t rest = std::min(size, zero + 1);
  longhaul::test::fuzz_one(data, zero, longhaul::test::read_head_profile_tsv);
  return longhaul::test::fuzz_one(data + rest, size - rest,
                                  longhaul::test::read_head_profile_config);
}
