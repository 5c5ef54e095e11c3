// Reads memory of a stream's device and does nothing else: how fast it can be read at best, for
// benchmarks. Local.
#pragma once
#include <cstddef>

#include "base/device/device.h"

namespace longhaul {

struct ReadAllArgs {
  const std::byte* from = nullptr;  // aligned to 16 bytes
  std::size_t n_bytes = 0;          // a multiple of 16
  std::byte* unused = nullptr;      // room for 4 bytes, so that no compiler leaves the reads out
};

void read_all(StreamRef stream, const ReadAllArgs& args);

}  // namespace longhaul
