#include "tools/bench/bench_flags.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "tests/support/paths.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/shapes.h"

namespace longhaul::bench {
namespace {

using testing::ElementsAre;

BenchFlags parsed(const std::string& arguments) {
  CLI::App app("bench");
  BenchFlags flags;
  add_bench_flags(app, flags);
  app.parse(arguments);
  check_bench_flags(flags);
  return flags;
}

TEST(BenchFlags, GiveTestsInLlamaBenchsOrder) {
  EXPECT_THAT(tests_of(parsed("--shape llama-3.2-1b")),
              ElementsAre(ModelTest{.n_prompt = 512}, ModelTest{.n_gen = 128}));
  const auto tests =
      tests_of(parsed("--shape llama-3.2-1b -p 0,16 -n 4 --pg 8,2 --pg 9,3 -d 0,1K -r 2 -t 1,2"));
  EXPECT_THAT(tests, ElementsAre(ModelTest{16, 0, 0}, ModelTest{0, 4, 0}, ModelTest{8, 2, 0},
                                 ModelTest{9, 3, 0}, ModelTest{16, 0, 1024}, ModelTest{0, 4, 1024},
                                 ModelTest{8, 2, 1024}, ModelTest{9, 3, 1024}));
  EXPECT_THROW(tests_of(parsed("--shape llama-3.2-1b -p 0 -n 0")), Error);
  EXPECT_THAT(tests_of(parsed("--shape llama-3.2-1b -p 0 -n 4 -d 0,1K --parallel 1,8 --quote 200")),
              ElementsAre(ModelTest{0, 4, 0}, ModelTest{0, 4, 0, 8}, ModelTest{0, 4, 1024},
                          ModelTest{0, 4, 1024, 8}, ModelTest{0, 200, 1024, 1, 16}));
  EXPECT_THROW(tests_of(parsed("--shape llama-3.2-1b --parallel 0")), Error);
}

TEST(BenchFlags, SayWhatDoesNotGoTogether) {
  EXPECT_THROW(parsed(""), Error);
  EXPECT_THROW(parsed("--shape llama-3.2-1b --sink 4"), Error);
  EXPECT_THROW(parsed("--shape a -m b"), CLI::ParseError);
  EXPECT_THROW(parsed("-m b --layers 2"), CLI::ParseError);
  EXPECT_THROW(parsed("--shape llama-3-8b --no-mmap"), CLI::ParseError);
  EXPECT_THROW(parsed("-m b --weights f8"), CLI::ParseError);
  EXPECT_THROW(parsed("--shape a --ctk q5_0"), CLI::ParseError);
  EXPECT_THROW(parsed("--shape a -o sql"), CLI::ParseError);
}

TEST(BenchModel, ScattersRetrievalHeadsTheSameWayEveryTime) {
  const BenchFlags flags = parsed("--shape llama-3.1-8b --retrieval-ratio 0.25 --recent 100");
  const BenchModel model(flags, /*hub_cache=*/{});
  EXPECT_EQ(model.facts().n_retrieval, 64);
  EXPECT_EQ(model.facts().sink, 128);
  EXPECT_EQ(model.facts().recent, 100);
  EXPECT_EQ(model.heads(), BenchModel(flags, /*hub_cache=*/{}).heads());
  std::int64_t n_layers_with = 0;
  for (std::int64_t layer = 0; layer < 32; ++layer)
    n_layers_with += layer_heads(model.heads(), {layer}).n_all > 0;
  EXPECT_GT(n_layers_with, 20);
  const BenchModel dense(parsed("--shape llama-3.1-8b"), /*hub_cache=*/{});
  EXPECT_EQ(dense.facts().n_retrieval, 256);
}

TEST(BenchModel, TakesTheProfilesFirstLayers) {
  const std::string needle = test::example_path("model").string();
  const BenchFlags flags = parsed(fmt::format("--shape {} --layers 3 --head-profile {}", needle,
                                              test::example_path("profile").string()));
  const BenchModel model(flags, /*hub_cache=*/{});
  const HeadRoles whole = choose_roles(read_head_profile(flags.heads.profile), std::nullopt);
  const HeadTable heads = model.heads();
  EXPECT_EQ(heads.n_layers(), 3);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::int64_t head = 0; head < heads.n_kv_heads(); ++head) {
      EXPECT_EQ(heads.window({layer}, {head}).is_unlimited(),
                whole.role({layer}, {head}) == HeadRole::kRetrieval);
    }
  }
  EXPECT_EQ(model.facts().n_layers, 3);
  EXPECT_EQ(model.facts().n_layers_of_model, 4);
  EXPECT_THAT(model.facts().model, testing::HasSubstr("3/4 layers"));
}

TEST(BenchModel, RefusesWhatDoesNotFit) {
  try {
    const BenchModel model(parsed("--shape llama-3.1-70b --weights f32"), /*hub_cache=*/{});
    model.source()->all_layers({});
    GTEST_SKIP() << "skipped: this machine has 263 GiB of free memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(), testing::HasSubstr("--layers"));
  }
}

}  // namespace
}  // namespace longhaul::bench
