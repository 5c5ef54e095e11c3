// Vectors and ranges of ids, and what they refuse to be indexed with.
#include "base/indexed_vector.h"

#include <gmock/gmock.h>

#include <concepts>
#include <numeric>
#include <span>
#include <stdexcept>
#include <unordered_set>

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename Vector, typename Index>
concept IndexedBy = requires(Vector vector, Index index) {
  vector[index];
};

using OfRing = IndexedVector<RingPos, int>;

TEST(IndexedVector, TakesItsOwnIdsOnly) {
  static_assert(IndexedBy<OfRing, RingPos>);
  static_assert(!IndexedBy<OfRing, Rank>);
  static_assert(!IndexedBy<OfRing, std::size_t>);
  static_assert(!std::convertible_to<std::vector<int>, OfRing>);
  static_assert(!std::convertible_to<IndexedVector<Rank, int>, OfRing>);
}

TEST(IndexedVector, HoldsValuesByIdFromZero) {
  OfRing values{7, 8};
  values.push_back(9);
  EXPECT_EQ(values[RingPos{0}], 7);
  EXPECT_EQ(values[RingPos{2}], 9);
  values[RingPos{1}] = 5;
  EXPECT_THAT(values, ElementsAre(7, 5, 9));
  EXPECT_EQ(values.front(), 7);
  EXPECT_EQ(values.back(), 9);
  EXPECT_EQ(values.n(), 3);
  EXPECT_EQ(values, OfRing(std::vector<int>{7, 5, 9}));
}

TEST(IndexedVector, AtIsChecked) {
  OfRing values(2, 4);
  EXPECT_EQ(values.at(RingPos{1}), 4);
  EXPECT_THROW(values.at(RingPos{2}), std::out_of_range);
  EXPECT_THROW(values.at(RingPos{}), std::out_of_range);
  EXPECT_THROW(std::as_const(values).at(RingPos{2}), std::out_of_range);
}

TEST(IndexedVector, IdsGoThroughIt) {
  OfRing values(4);
  for (const RingPos at : values.ids()) values[at] = static_cast<int>(10 * at.value);
  EXPECT_THAT(values, ElementsAre(0, 10, 20, 30));
  values.pop_back();
  values.resize(4);
  EXPECT_THAT(values, ElementsAre(0, 10, 20, 0));
  values.assign(2, 3);
  EXPECT_THAT(values, ElementsAre(3, 3));
  values.clear();
  EXPECT_TRUE(values.empty());
}

TEST(IndexedVector, IsASpanWhereOrderDoesNotMatter) {
  const OfRing values{1, 2, 3};
  const std::span<const int> span = values;
  EXPECT_EQ(std::accumulate(span.begin(), span.end(), 0), 6);
  EXPECT_EQ(values.values().size(), 3U);
}

TEST(IndexedVector, HoldsTruthValues) {
  IndexedVector<KvHeadId, bool> keeps_all(3, false);
  keeps_all[KvHeadId{1}] = true;
  EXPECT_THAT(keeps_all, ElementsAre(false, true, false));
  EXPECT_TRUE(keeps_all.at(KvHeadId{1}));
}

std::vector<std::int64_t> numbers(IdRange<LayerId> range) {
  std::vector<std::int64_t> values;
  for (const LayerId layer : range) values.push_back(layer.value);
  return values;
}

TEST(IdRange, IsHalfOpen) {
  EXPECT_THAT(numbers(IdRange<LayerId>(3)), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(IdRange<LayerId>(Extent{4, 6})), ElementsAre(4, 5));
}

TEST(IdRange, MayBeEmpty) {
  EXPECT_THAT(numbers(IdRange<LayerId>(0)), IsEmpty());
  EXPECT_THAT(numbers(IdRange<LayerId>(Extent{4, 4})), IsEmpty());
  EXPECT_THAT(numbers(IdRange<LayerId>(Extent{4, 1})), IsEmpty());
}

TEST(Ids, CompareAndHashAndDoNotMix) {
  static_assert(!std::equality_comparable_with<Rank, RingPos>);
  static_assert(!std::convertible_to<std::int64_t, Rank>);
  static_assert(!std::convertible_to<Rank, std::int64_t>);
  EXPECT_LT(Rank{1}, Rank{2});
  EXPECT_EQ(Rank{}.value, -1);
  const std::unordered_set<Rank> ranks{{1}, {2}, {1}};
  EXPECT_EQ(ranks.size(), 2U);
}

}  // namespace
}  // namespace longhaul
