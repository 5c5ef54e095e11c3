#include "worker/snapshot/fletcher32.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace longhaul {
namespace {

constexpr std::uint64_t kModulus = 65535;
// The lanes of a vector: words i, i + kLanes, ... are added up apart, and weighed in the end.
constexpr std::size_t kLanes = 8;
using Halves = std::uint16_t __attribute__((vector_size(16)));
using Sum = std::uint32_t __attribute__((vector_size(16)));  // of four lanes
// So many words of a lane that sums of sums fit 32 bits: 65535 * 360 * 361 / 2 < 2^32.
constexpr std::size_t kLongest = 360;

struct Sums {
  std::uint64_t words = 0;     // the sum of the words
  std::uint64_t prefixes = 0;  // the sum of that sum after each word
};

// HDF5 folds with end-around carries: a sum is 0 only where all words are, else 1 to 65535.
std::uint64_t fold(std::uint64_t sum) {
  if (sum == 0) return 0;
  return (sum - 1) % kModulus + 1;
}

// `n` words of each lane.
void add_lanes(const std::byte* words, std::size_t n, Sums& sums) {
  std::array<Sum, 2> sum{};
  std::array<Sum, 2> prefixes{};
  for (std::size_t i = 0; i < n; ++i) {
    Halves word;
    std::memcpy(&word, words + i * sizeof(word), sizeof(word));
    sum[0] += Sum(__builtin_shufflevector(word, Halves{}, 0, 8, 1, 9, 2, 10, 3, 11));
    sum[1] += Sum(__builtin_shufflevector(word, Halves{}, 4, 12, 5, 13, 6, 14, 7, 15));
    prefixes[0] += sum[0];
    prefixes[1] += sum[1];
  }
  // Word j of a lane stands before n * kLanes - (j * kLanes + lane) ends of prefixes, itself
  // included: kLanes * (n - j) - lane.
  std::uint64_t all = 0;
  std::uint64_t weighed = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t of_lane = sum[lane / 4][lane % 4];
    all += of_lane;
    weighed += kLanes * std::uint64_t{prefixes[lane / 4][lane % 4]} - lane * of_lane;
  }
  sums.prefixes = fold(sums.prefixes + n * kLanes * sums.words + weighed);
  sums.words = fold(sums.words + all);
}

void add_word(std::uint16_t word, Sums& sums) {
  sums.words = fold(sums.words + word);
  sums.prefixes = fold(sums.prefixes + sums.words);
}

// Both bytes change places, which modulo 65535 is a product with 256.
std::uint64_t swapped(std::uint64_t sum) { return fold(sum * 256); }

}  // namespace

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  Sums sums;  // of words whose first byte is the lower one
  const std::byte* at = bytes.data();
  std::size_t n_words = bytes.size() / 2;
  while (n_words >= kLanes) {
    const std::size_t n = std::min(n_words / kLanes, kLongest);
    add_lanes(at, n, sums);
    at += 2 * n * kLanes;
    n_words -= n * kLanes;
  }
  for (; n_words > 0; --n_words, at += 2) {
    std::uint16_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    add_word(word, sums);
  }
  if (bytes.size() % 2 == 1) add_word(static_cast<std::uint16_t>(*at), sums);
  return static_cast<std::uint32_t>(swapped(sums.prefixes) << 16 | swapped(sums.words));
}

}  // namespace longhaul
