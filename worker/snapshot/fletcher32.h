// The checksum that HDF5 appends to each chunk of a data set with its filter "fletcher32", so that
// chunks can be made by any thread and written as they are. Private to this folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul {

// Of 16-bit words, the first byte the higher one; a last single byte counts as a higher one.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

}  // namespace longhaul
