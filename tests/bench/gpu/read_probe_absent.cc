#include "tests/bench/gpu/read_probe.h"

namespace longhaul::bench {

void read_all(cuda::Stream&, const std::byte*, std::size_t, std::byte*) {}

}  // namespace longhaul::bench
