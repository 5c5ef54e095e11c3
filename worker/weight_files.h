// Where weights lie that products take as model files have them.
#pragma once
#include <cstdint>

namespace longhaul {

// Matrices that files have as products take them, on CPUs.
enum class WeightFiles : std::uint8_t {
  kMapped,  // read where the files are mapped: there at once, and once for all processes of a host
  kCopied,  // into memory of this process, which may have huge pages where mapped files have none
};

}  // namespace longhaul
