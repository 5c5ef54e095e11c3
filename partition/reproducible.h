// Reproducible results: the same bits on any number of ranks, with any chunk length, beside any
// other requests and with any number of threads, on one instruction set. What that asks of a job is
// said here; docs/reproducible.md says how it is done and what it costs. Pure.
#pragma once
#include <optional>
#include <string>

#include "base/device/device.h"
#include "model/heads/head_table.h"

namespace longhaul {

// Why these heads on this device cannot be reproducible, in words for people; nullopt where they
// can.
std::optional<std::string> why_not_reproducible(const HeadTable& heads, Device device);

// Throws kInvalidArgument with that reason.
void require_reproducible(const HeadTable& heads, Device device);

}  // namespace longhaul
