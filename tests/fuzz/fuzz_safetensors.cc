// A safetensors file: its header, and what it says of the data.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/read_inputs.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return longhaul::test::fuzz_one(data, size, longhaul::test::read_safetensors);
}
