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
using Rank = Id<struct RankTag>;            // of the job
using RingPos = Id<struct RingPosTag>;      // place in the ring of a stage: never a Rank
using LayerId = Id<struct LayerTag>;        // of the model, counted from its first
using KvHeadId = Id<struct KvHeadTag>;      // of a layer, in the published order
using TokenPos = Id<struct TokenPosTag>;    // of a token in its sequence
using SlotIndex = Id<struct SlotTag>;       // of a cached token among those that its head keeps
using BlockSlot = Id<struct BlockSlotTag>;  // of a cached token in its block

// Half-open range [begin, end).
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  auto operator<=>(const Extent&) const = default;
};

// The ids of [begin, end), for loops: for (const LayerId layer : IdRange<LayerId>(layers)) ...
template <typename IdType>
class IdRange {
 public:
  struct Iterator {
    std::int64_t value;
    IdType operator*() const { return {value}; }
    Iterator& operator++() {
      ++value;
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  explicit IdRange(Extent extent) : extent_(extent) {}
  explicit IdRange(std::int64_t n) : extent_{0, n} {}
  Iterator begin() const { return {extent_.begin}; }
  Iterator end() const { return {extent_.empty() ? extent_.begin : extent_.end}; }

 private:
  Extent extent_;
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace longhaul

template <typename Tag>
struct std::hash<longhaul::Id<Tag>> {
  std::size_t operator()(longhaul::Id<Tag> id) const { return std::hash<std::int64_t>{}(id.value); }
};
