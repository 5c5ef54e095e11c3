// Random draws that are the same on every machine and with every standard library: what a seed
// gives is part of an evaluation's description.
#pragma once
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/split_mix.h"

namespace longhaul {

// SplitMix64 (Steele, Lea & Flood 2014).
class RandomDraws {
 public:
  explicit RandomDraws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    const std::uint64_t drawn = split_mix(state_);
    state_ += kSplitMixStep;
    return drawn;
  }
  // In [0, n); n >= 1. The bias is below n / 2^64.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  // `count` different numbers of [0, n) in random order; count <= n.
  std::vector<std::size_t> sample(std::size_t n, std::size_t count) {
    std::vector<std::size_t> all(n);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + below(n - i)]);
    all.resize(count);
    return all;
  }

 private:
  std::uint64_t state_;
};

}  // namespace longhaul
