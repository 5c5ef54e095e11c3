// A chat template: it is read and rendered.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/read_inputs.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return longhaul::test::fuzz_one(data, size, longhaul::test::read_chat_template);
}
