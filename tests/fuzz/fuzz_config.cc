// config.json, generation_config.json and index.json: each input goes to all three.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/read_inputs.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  longhaul::test::fuzz_one(data, size, longhaul::test::read_hf_config);
  longhaul::test::fuzz_one(data, size, longhaul::test::read_generation_config);
  return longhaul::test::fuzz_one(data, size, longhaul::test::read_weight_index);
}
