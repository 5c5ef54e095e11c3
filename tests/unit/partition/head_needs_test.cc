// What is counted once for each layer is what the layers' heads need, in any stage of random
// tables.
#include "partition/head_needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "partition/memory_model.h"
#include "tests/support/random.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::Random;

HeadPolicy random_policy(Random& random) {
  const std::int64_t kind = random.integer(0, 7);
  if (kind == 0) return {};
  if (kind == 1) return {.see = SeeSinkRecent{4, random.integer(1, 512)}};
  if (kind == 2) return {.see = SeeSinkRecent{4, 512}, .rest = Rest::kCompensationKey};
  if (kind == 3) return {.choose = ReadTopPages{16, 16 * random.integer(1, 300)}};
  KeepBudget keep{.n_tokens = random.integer(1, 9000)};
  if (random.chance(0.3)) keep.share = random.uniform(0.01, 1);
  if (random.chance(0.3)) keep.when = KeepWhen::kAfterDocument;
  if (kind == 4) keep.observe = ObserveAll{};
  if (kind == 5) keep.observe = ObserveKeys{};
  if (kind > 5) keep.observe = ObserveLast{random.integer(1, 64)};
  if (kind == 6) keep.select = SelectAmong::kLayerShared;
  if (kind == 7) {
    keep.group = GroupScore::kEach;
    keep.n_choosers = 2;
  }
  return {.keep = keep};
}

struct Case {
  explicit Case(Random& random) : spec(test::tiny_model(random.integer(1, 9), 3)) {
    heads = HeadTable(spec.n_layers, spec.n_kv_heads);
    for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
      const HeadPolicy of_layer = random_policy(random);
      for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads))
        heads.set(layer, kv_head, random.chance(0.5) ? of_layer : random_policy(random));
    }
    workload = {.document_tokens = random.integer(1, 100'000),
                .tail_tokens = random.integer(1, 3000),
                .n_sequences = random.integer(1, 5),
                .chunk_len = random.integer(1, 9000),
                .k_type = random.chance(0.5) ? KvType::kInt4 : KvType::kBf16};
    layers.begin = random.integer(0, spec.n_layers - 1);
    layers.end = random.integer(layers.begin + 1, spec.n_layers);
    n_ranks = random.integer(1, 4);
  }
  HeadNeeds needs() const { return {heads, spec, equal_cluster(1, test::kGiB), workload}; }
  ModelSpec spec;
  HeadTable heads;
  Workload workload;
  Extent layers;
  std::int64_t n_ranks = 0;
};

template <typename Body>
void for_random_cases(const Body& body) {
  for (int i = 0; i < 300 * test::intensity(); ++i) {
    const std::uint64_t seed = test::base_seed() * 1000 + static_cast<std::uint64_t>(i);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    body(Case(random), random);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(HeadNeeds, RoomIsWhatAllHeadsOfAStageLeave) {
  for_random_cases([](const Case& c, Random& random) {
    const KvFormat kv = c.workload.kv(c.spec);
    std::int64_t beside_heads = 0;
    std::int64_t beside_block = 0;
    std::int64_t n_gathered = 0;
    std::int64_t n_times = 0;
    for (const LayerId layer : IdRange<LayerId>(c.layers)) {
      for (const KvHeadId kv_head : IdRange<KvHeadId>(c.spec.n_kv_heads)) {
        const HeadPolicy& policy = c.heads.at(layer, kv_head);
        beside_heads +=
            open_bytes_of_head(kv, c.workload) + bytes_beside_head(policy, c.spec, c.workload);
        if (!window_of(policy).is_unlimited()) continue;
        const Gathered gathered = gathered_of(policy, c.workload);
        beside_block = std::max({beside_block, bytes_beside_block(policy, c.spec, c.workload),
                                 bytes_beside_gathered(policy, c.workload)});
        n_gathered += gathered.of(gathered.most_blocks);
        n_times = std::max(n_times, gathered.n_times);
      }
    }
    const BesideBlocks beside =
        stage_size(c.spec, c.needs(), c.workload, c.layers, c.n_ranks).beside;
    const std::int64_t n_blocks = random.integer(0, 3 * n_gathered + 10);
    const std::int64_t bytes = beside_heads + n_blocks * (kv.block_bytes() + beside_block);
    EXPECT_EQ(room_for_blocks(beside, kv, bytes),
              std::max(n_blocks - n_gathered, n_blocks / (1 + n_times)));
    EXPECT_EQ(room_for_blocks(beside, kv, beside_heads - 1), -1);
  });
}

// Layers choose one after the other. What stays meanwhile are queries that are asked once more, of
// each layer, and sums that ranks hand on, as many as the layer with most of them has.
TEST(HeadNeeds, LayersChooseOneAfterTheOther) {
  for_random_cases([](const Case& c, Random&) {
    const std::int64_t n_ranks = 1 + c.n_ranks;
    const HeadNeeds needs = c.needs();
    const auto bytes = [&](const std::vector<LayerChoice>& layers) {
      return choice_bytes(layers, c.spec, c.workload, n_ranks);
    };
    std::int64_t choosing = 0;
    std::int64_t queries = 0;
    std::int64_t sums = 0;
    for (std::int64_t i = c.layers.begin; i < c.layers.end; ++i) {
      const LayerChoice& layer = needs.choice[static_cast<std::size_t>(i)];
      const std::int64_t of_queries = bytes({layer, layer}) - bytes({layer});
      const std::int64_t of_sums = bytes({LayerChoice{.n_rest = layer.n_rest}});
      choosing = std::max(choosing, bytes({layer}) - of_queries - of_sums);
      queries += of_queries;
      sums = std::max(sums, of_sums);
    }
    EXPECT_EQ(stage_size(c.spec, needs, c.workload, c.layers, n_ranks).choosing,
              choosing + queries + sums);
  });
}

}  // namespace
}  // namespace longhaul
