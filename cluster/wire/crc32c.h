// CRC-32C (Castagnoli), as in iSCSI and ext4: notices damage in transit and on disk; it is no
// protection against forgery.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul {

std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace longhaul
