#include "base/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace longhaul {
namespace {

std::uintptr_t address(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Of the mapping that holds this address: whether the kernel knows that huge pages are wished for.
bool wishes_huge_pages(const std::byte* at) {
  std::ifstream smaps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-')
      is_here = begin <= address(at) && address(at) < end;
    if (is_here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

bool is_mapped(const std::byte* at) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    words >> std::hex >> begin >> dash >> end;
    if (begin <= address(at) && address(at) < end) return true;
  }
  return false;
}

TEST(HostMemory, LargeOnesAreMappedAtHugePagesAsZerosAndGoBack) {
  for (const std::size_t bytes :
       {kHugePageBytes, kHugePageBytes + 1, 3 * kHugePageBytes - 4096, 5 * kHugePageBytes}) {
    std::byte* first = nullptr;
    {
      const HostMemory memory(bytes);
      first = memory.data();
      EXPECT_EQ(address(first) % kHugePageBytes, 0U);
      EXPECT_TRUE(memory.began_as_zeros());
      EXPECT_TRUE(std::all_of(first, first + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::fill(first, first + bytes, std::byte{1});
      EXPECT_TRUE(is_mapped(first + bytes - 1));
      EXPECT_TRUE(!huge_pages_refusal().empty() || wishes_huge_pages(first));
    }
    EXPECT_FALSE(is_mapped(first));
  }
}

TEST(HostMemory, SmallOnesAreAlignedForVectors) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kHugePageBytes - 1}) {
    const HostMemory memory(bytes);
    EXPECT_EQ(address(memory.data()) % 64, 0U);
    EXPECT_EQ(memory.bytes(), bytes);
  }
}

TEST(HostMemory, Moves) {
  HostMemory memory(kHugePageBytes);
  std::byte* const first = memory.data();
  HostMemory other = std::move(memory);
  EXPECT_EQ(other.data(), first);
  other = HostMemory(8);
  EXPECT_FALSE(is_mapped(first));
  other = {};
  EXPECT_EQ(other.data(), nullptr);
}

// A process may have few mappings (65530): pieces that lie side by side count as one.
TEST(HostMemory, PiecesOfOneSizeLieSideBySide) {
  constexpr std::size_t kPieces = 64;
  std::vector<HostMemory> pieces;
  for (std::size_t i = 0; i < kPieces; ++i) pieces.emplace_back(kHugePageBytes);
  std::vector<std::uintptr_t> begins;
  for (const HostMemory& piece : pieces) begins.push_back(address(piece.data()));
  std::sort(begins.begin(), begins.end());
  std::size_t n_gaps = 0;
  for (std::size_t i = 1; i < kPieces; ++i) n_gaps += begins[i] - begins[i - 1] > kHugePageBytes;
  EXPECT_LT(n_gaps, kPieces / 4);
}

}  // namespace
}  // namespace longhaul
