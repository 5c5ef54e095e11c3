// How ranks with GPUs exchange what lies in them (gpu_communicator.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/device/landing_memory.h"

namespace longhaul {

enum class GpuTransport : std::uint8_t {
  kStaged,
  kNcclWherePossible,  // between ranks that have NCCL and GPUs of their own; otherwise staged
  kCopyEnginesWherePossible,  // the same, with copy engines within a host
};

struct CopyEngineConfig {
  std::size_t slot_bytes = static_cast<std::size_t>(kLandingSlotBytes);  // a multiple of 16
  // Ranks that give different numbers do not try to reach each other.
  std::int64_t island = 0;
};

}  // namespace longhaul
