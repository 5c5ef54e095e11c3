#include "tools/bench/machine.h"

#include <gtest/gtest.h>

namespace longhaul::bench {
namespace {

TEST(Machine, IsNamedAsTheSystemNamesIt) {
  EXPECT_EQ(cpu_name_in("processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nmodel name\t: Other\n"),
            "Some CPU @ 2.50GHz");
  EXPECT_EQ(cpu_name_in("processor\t: 0\n"), "");
  EXPECT_EQ(cpu_name_in("model name"), "");
  EXPECT_EQ(cpu_name_in("model name\t:"), "");
  EXPECT_NE(cpu_name(), "");
}

}  // namespace
}  // namespace longhaul::bench
