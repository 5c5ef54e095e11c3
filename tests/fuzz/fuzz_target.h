// What every fuzz target is: bytes in, longhaul::Error is a fair refusal, anything else (another
// exception, a sanitizer's report, a hang, too much memory) is a finding.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace longhaul::test {

template <typename Read>
int fuzz_one(const std::uint8_t* data, std::size_t size, Read read) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    read(bytes);
  } catch (const Error& error) {
    if (std::string_view(error.what()).empty()) __builtin_trap();  // a refusal says why
  }
  return 0;
}

}  // namespace longhaul::test

// Named by libFuzzer.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
