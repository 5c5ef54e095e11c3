// That the tests beside this one run the emulated AMX (tests/amx_on_host).
#include <gtest/gtest.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/isa.h"

namespace longhaul::test {
namespace {

TEST(AmxOnHost, IsChosenWhereTheRestIsThere) {
  if (!may_use_amx()) GTEST_SKIP() << "no AVX-512 BF16, which kernels for AMX use besides";
  EXPECT_EQ(active_isa(), Isa::kAmx);
}

}  // namespace
}  // namespace longhaul::test
