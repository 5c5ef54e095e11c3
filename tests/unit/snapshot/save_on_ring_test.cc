// What rings of ranks save, over stages and dealt blocks, is what one rank alone saves.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/multirank/ring_cases.h"
#include "tests/property/worker_cases.h"
#include "tests/support/paths.h"
#include "tests/unit/snapshot/dealt_caches.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

class SaveOnRing : public testing::TestWithParam<std::int64_t> {};

TEST_P(SaveOnRing, IsWhatOneRankSaves) {
  LONGHAUL_SKIP_UNLESS_H5PY();
  const std::int64_t n_ranks = GetParam();
  for (int round = 0; round < 3 * intensity(); ++round) {
    const auto seed = base_seed() * 1000 + static_cast<std::uint64_t>(100 * n_ranks + round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    const HeadTable heads = duo_attention_heads(spec, random_roles(random, spec));
    const auto weights = tiny_weights(spec, DType::kF32, seed);
    const KvFormat kv{.block_size = 16, .head_dim = spec.head_dim};
    const auto tokens = random_tokens(random, random.integer(30, 400), spec.vocab_size);
    const auto half = static_cast<std::ptrdiff_t>(tokens.size() / 2);
    const TemporaryFolder folder;
    const auto script = [&](const char* name) -> std::vector<StepCommand> {
      return {OpenSequence{{1}, {}},
              PrefillChunk{.sequence = {1}, .tokens = {tokens.begin(), tokens.begin() + half}},
              PrefillChunk{.sequence = {1}, .tokens = {tokens.begin() + half, tokens.end()}},
              SaveSequence{{1}, folder.path().string(), name, tokens, {{"content_id", "1"}}}};
    };
    Worker alone({.weights = weights, .heads = heads, .block_size = 16, .n_threads = 1});
    for (const StepCommand& command : script("alone")) done(alone.step(command));
    const std::int64_t most_stages = std::min<std::int64_t>({3, n_ranks, spec.n_layers});
    const Plan plan = random_plan(random, spec, heads, n_ranks, random.integer(1, most_stages), kv);
    run_on_ring({.weights = weights, .plan = plan}, script("ring"));
    EXPECT_EQ(run_check({"close", (folder.path() / "alone.h5").string(),
                         (folder.path() / "ring.h5").string()}),
              "");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SaveOnRing, testing::Values(1, 2, 3, 5),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace longhaul::test
