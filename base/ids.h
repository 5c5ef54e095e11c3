// Integer ids that cannot be mixed up, and half-open ranges.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>

namespace longhaul {

// A number of type Tag; comparable, hashable, never converted implicitly. `value` is for printing
// and indexing.
template <typename Tag>
struct Id {
  std::int64_t value = -1;
  auto operator<=>(const Id&) const = default;
};

using SequenceId = Id<struct SequenceTag>;
using Rank = Id<struct RankTag>;

// Half-open range [begin, end).
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  auto operator<=>(const Extent&) const = default;
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace longhaul

template <typename Tag>
struct std::hash<longhaul::Id<Tag>> {
  std::size_t operator()(longhaul::Id<Tag> id) const { return std::hash<std::int64_t>{}(id.value); }
};
