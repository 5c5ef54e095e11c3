// SplitMix64 (Steele, Lea & Flood 2014): numbers that depend on a seed and a place alone, the same
// on every machine and with every standard library.
#pragma once
#include <cstdint>

namespace longhaul {

// What the generator's state grows by with each draw.
inline constexpr std::uint64_t kSplitMixStep = 0x9E3779B97F4A7C15U;

// A well-mixed number for every x: the generator's next draw when its state is x.
constexpr std::uint64_t split_mix(std::uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace longhaul
