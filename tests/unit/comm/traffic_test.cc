#include "cluster/comm/traffic.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cluster/comm/slot_table.h"

namespace longhaul {
namespace {

TEST(Traffic, EveryKindHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kTrafficKinds; ++i) names.insert(name_of(static_cast<Traffic>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kTrafficKinds));
  EXPECT_EQ(names.count("unknown traffic"), 0U);
  EXPECT_EQ(name_of(static_cast<Traffic>(kTrafficKinds)), "unknown traffic");
}

TEST(Traffic, CountersAddAndSubtract) {
  TrafficCounters a;
  a[Traffic::kKeys] = {.messages = 2, .bytes = 100};
  TrafficCounters b = a;
  b[Traffic::kHalo] = {.messages = 1, .bytes = 7};
  const TrafficCounters difference = b - a;
  TrafficCounters want;
  want[Traffic::kHalo] = b[Traffic::kHalo];
  EXPECT_EQ(difference, want);
  a += difference;
  EXPECT_EQ(a, b);
}

TEST(SlotTable, UsesReleasedSlotsAgain) {
  SlotTable<std::string> table;
  const int first = table.add("first");
  const int second = table.add("second");
  EXPECT_NE(first, second);
  table.release(first);
  EXPECT_EQ(table.add("third"), first);
  EXPECT_EQ(table[first], "third");
  EXPECT_EQ(table[second], "second");
}

}  // namespace
}  // namespace longhaul
