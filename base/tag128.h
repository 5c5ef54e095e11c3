// A checksum of 128 bits at several GB/s: AES-GCM's GMAC with a key of zeros, which is known to
// all. It notices damage and is no protection against forgery; SHA-256 (sha256.h) is, and takes
// several times as long. Local.
#pragma once
#include <array>
#include <cstddef>
#include <span>

namespace longhaul {

using Tag128 = std::array<std::byte, 16>;

Tag128 tag_of(std::span<const std::byte> bytes);

}  // namespace longhaul
