// What every rank of a ring has of something: the one way in which choices by attention ask others.
#pragma once
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

namespace longhaul {

// What every rank of the ring has of something, in ring order; of a rank alone its own.
using GatherBytes =
    std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte> mine)>;

inline std::vector<std::vector<std::byte>> of_one_rank(std::span<const std::byte> mine) {
  return {{mine.begin(), mine.end()}};
}

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> values_in(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace longhaul
