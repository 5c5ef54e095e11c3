// Pieces never overlap, gaps join, and what is given back is given out again.
#include "base/piece_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/support/random.h"

namespace longhaul::test {
namespace {

constexpr std::size_t kUnit = PieceMap::kAlignment;

TEST(PieceMap, TakesTheSmallestGapThatSuits) {
  PieceMap map(10 * kUnit + 100);  // the last bytes are no whole unit
  EXPECT_EQ(map.bytes(), 10 * kUnit);
  std::vector<std::size_t> at;
  for (const std::size_t bytes : {3 * kUnit, kUnit, kUnit - 1, std::size_t{1}, 4 * kUnit})
    at.push_back(map.take(bytes).value());
  EXPECT_EQ(at, (std::vector<std::size_t>{0, 3 * kUnit, 4 * kUnit, 5 * kUnit, 6 * kUnit}));
  EXPECT_FALSE(map.take(1));
  map.give_back(at[0]);
  map.give_back(at[2]);
  EXPECT_EQ(map.take(kUnit), at[2]);
  EXPECT_EQ(map.take(2 * kUnit), at[0]);
  EXPECT_FALSE(map.take(kUnit + 1)) << "a unit is left";
  EXPECT_EQ(map.most_taken(), 10 * kUnit);
  EXPECT_EQ(map.bytes_taken(), 9 * kUnit);
}

TEST(PieceMap, GapsJoinOnBothSides) {
  PieceMap map(3 * kUnit);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(map.take(kUnit), i * kUnit);
  map.give_back(0);
  map.give_back(2 * kUnit);
  EXPECT_FALSE(map.take(kUnit + 1)) << "both gaps are of a unit";
  map.give_back(kUnit);
  EXPECT_EQ(map.take(3 * kUnit), 0U);
}

using Pieces = std::map<std::size_t, std::size_t>;  // offset -> bytes

std::size_t largest_gap(const PieceMap& map, const Pieces& held) {
  std::size_t largest = 0;
  std::size_t end = 0;  // of the piece before
  for (const auto& [offset, bytes] : held) {
    largest = std::max(largest, offset - end);
    end = offset + (bytes + kUnit - 1) / kUnit * kUnit;
  }
  return std::max(largest, map.bytes() - end);
}

TEST(PieceMap, RandomPiecesDoNotOverlap) {
  Random random(base_seed());
  PieceMap map(1000 * kUnit);
  Pieces held;
  for (int round = 0; round < 5000; ++round) {
    if (!held.empty() && random.chance(0.48)) {
      const auto which =
          std::next(held.begin(), random.integer(0, static_cast<std::int64_t>(held.size()) - 1));
      map.give_back(which->first);
      held.erase(which);
      continue;
    }
    const auto bytes = static_cast<std::size_t>(random.integer(1, 40 * kUnit));
    const std::size_t gap = largest_gap(map, held);
    const auto offset = map.take(bytes);
    ASSERT_EQ(offset.has_value(), bytes <= gap);
    if (!offset) continue;
    ASSERT_LE(*offset + bytes, map.bytes());
    const auto after = held.lower_bound(*offset);
    if (after != held.end()) {
      ASSERT_LE(*offset + bytes, after->first);
    }
    if (after != held.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + before->second, *offset);
    }
    held[*offset] = bytes;
  }
  for (const auto& [offset, bytes] : held) map.give_back(offset);
  EXPECT_EQ(map.bytes_taken(), 0U);
  EXPECT_EQ(map.take(map.bytes()), 0U) << "all gaps are one";
}

}  // namespace
}  // namespace longhaul::test
