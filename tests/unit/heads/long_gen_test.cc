// Which layers LongGen leaves whole, and what the others see.
#include "model/heads/long_gen.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

TEST(LongGen, TheMiddleThirdSeesEverything) {
  EXPECT_EQ(long_gen_layers(3), (Extent{1, 2}));
  EXPECT_EQ(long_gen_layers(32), (Extent{10, 22}));  // Llama-2-7B: 12 of 32 layers
  EXPECT_EQ(long_gen_layers(2), (Extent{0, 2}));     // no third to spare
  const HeadRoles roles = long_gen_roles(6, 2, 4, 1020);
  for (std::int64_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(roles.n_retrieval(LayerId{layer}), layer == 2 || layer == 3 ? 2 : 0)
        << "layer " << layer;
  }
}

TEST(LongGen, AModelsOwnWindowsStay) {
  ModelSpec spec;
  spec.n_layers = 6;
  spec.n_kv_heads = 2;
  spec.attention_window.assign(6, ModelSpec::kNoWindow);
  spec.attention_window[2] = 100;
  const HeadTable heads = duo_attention_heads(spec, long_gen_roles(6, 2, 4, 1020));
  EXPECT_EQ(heads.window({0}, {1}), (KeyWindow{4, 1020}));
  EXPECT_EQ(heads.window({2}, {1}), (KeyWindow{0, 100}));
  EXPECT_TRUE(heads.window({3}, {1}).is_unlimited());
}

TEST(LongGen, RefusesAWindowWithoutTheQueryItself) {
  EXPECT_THROW(long_gen_roles(6, 2, 4, 0), Error);
}

}  // namespace
}  // namespace longhaul
