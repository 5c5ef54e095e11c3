// The block formulas against hand values, and against tokens counted one by one.
#include "model/heads/kept_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/random.h"

namespace longhaul {
namespace {

// Blocks of which the next query, at n_tokens, sees a token; and the partial last one.
std::set<std::int64_t> seen_blocks(const KeyWindow& window, std::int64_t block_size,
                                   std::int64_t n_tokens) {
  std::set<std::int64_t> blocks;
  for (std::int64_t key = 0; key < n_tokens; ++key) {
    if (key < window.sink || n_tokens - key < window.recent) blocks.insert(key / block_size);
  }
  if (n_tokens % block_size != 0) blocks.insert(n_tokens / block_size);
  return blocks;
}

KeyWindow random_window(test::Random& random) {
  if (random.chance(0.1)) return {};
  return {random.integer(0, 60), random.integer(1, 120)};
}

TEST(KeptBlocks, HandCases) {
  EXPECT_EQ(kept_blocks({}, 16, 0), 0);
  EXPECT_EQ(kept_blocks({}, 16, 16), 1);
  EXPECT_EQ(kept_blocks({}, 16, 17), 2);
  EXPECT_EQ(kept_blocks({}, 16, 1'000'000'000'000), 62'500'000'000);
  const KeyWindow window{4, 16};
  // At 33 tokens the next query sees 18..33: blocks 0 (sink), 1, 2. At 47 it sees 32..: block 1
  // goes.
  EXPECT_EQ(kept_blocks(window, 16, 33), 3);
  EXPECT_EQ(kept_blocks(window, 16, 46), 3);
  EXPECT_EQ(kept_blocks(window, 16, 47), 2);
  EXPECT_EQ(kept_blocks(window, 16, 1'000'000), 2);
  EXPECT_EQ(kept_blocks({16, 128}, 16, 5'000'000'000), 9);
}

// Blocks of 4. After 20 tokens the query at 20 sees 13..: block 3 (12..15) stays, 1 and 2 are gone.
TEST(KeptBlocks, HandCasesInSmallBlocks) {
  const KeyWindow window{.sink = 4, .recent = 8};
  EXPECT_EQ(kept_blocks(window, 4, 20), 1 + 2);
  EXPECT_EQ(kept_blocks(window, 4, 19), 1 + 2);  // sees 12..: blocks 3 and 4
  EXPECT_EQ(kept_blocks(window, 4, 18), 1 + 3);  // sees 11..: blocks 2, 3 and 4
  EXPECT_EQ(kept_blocks(window, 4, 3), 1);
  EXPECT_EQ(kept_blocks(window, 4, 0), 0);
  EXPECT_EQ(kept_blocks(window, 4, 20, 5), 0);
  EXPECT_EQ(kept_blocks(window, 4, 22, 5), 1);
  EXPECT_EQ(kept_blocks({}, 4, 21), 6);
  for (std::int64_t n = 0; n < 100; ++n) {
    ASSERT_LE(kept_blocks(window, 4, n), max_kept_blocks(window, 4, n));
  }
}

TEST(HiddenPositions, AreExactlyThoseThatNoLaterQuerySees) {
  for (const std::int64_t sink : {0, 1, 3, 5}) {
    for (const std::int64_t recent : {1, 2, 4, 7}) {
      for (std::int64_t n = 0; n < 25; ++n) {
        const Extent hidden = hidden_positions({sink, recent}, n);
        for (std::int64_t key = 0; key < n; ++key) {
          bool is_seen = false;
          for (std::int64_t query = n; query < n + 30; ++query) {
            is_seen = is_seen || key < sink || query - key < recent;
          }
          EXPECT_EQ(hidden.contains(key), !is_seen)
              << "sink " << sink << " recent " << recent << " n " << n << " key " << key;
        }
      }
    }
  }
}

TEST(HiddenPositions, OfLongTextsAndOfHeadsThatSeeAll) {
  EXPECT_EQ(hidden_positions({16, 128}, 5'000'000'000), (Extent{16, 4'999'999'873}));
  EXPECT_TRUE(hidden_positions({}, 1'000'000).empty());
}

// Layers by what their heads keep; of several windows the largest.
TEST(LayerHeads, CountsHeadsByWhatTheyKeep) {
  HeadTable heads(1, 4);
  heads.set({0}, {1}, {.see = SeeSinkRecent{4, 12}});
  heads.set({0}, {3}, {.see = SeeSinkRecent{0, 20}});
  const LayerHeads layer = layer_heads(heads, {0});
  EXPECT_EQ(layer.n_all, 2);
  EXPECT_EQ(layer.n_windowed, 2);
  EXPECT_EQ(layer.window, (KeyWindow{4, 20}));
}

TEST(KeptBlocks, AreThoseThatTheNextQuerySees) {
  test::Random random(test::base_seed());
  for (int i = 0; i < 500 * test::intensity(); ++i) {
    const KeyWindow window = random_window(random);
    const std::int64_t block_size = random.integer(1, 40);
    const std::int64_t n_tokens = random.integer(0, 400);
    const std::int64_t first = random.integer(0, 12);
    const auto seen = seen_blocks(window, block_size, n_tokens);
    const auto expected =
        std::count_if(seen.begin(), seen.end(), [&](std::int64_t block) { return block >= first; });
    ASSERT_EQ(kept_blocks(window, block_size, n_tokens, first), expected)
        << "seed " << test::base_seed() << " case " << i;
  }
}

// While a sequence grows token by token, the blocks of before the step and the new one are there.
TEST(KeptBlocks, TheMostIsNeverPassedAndIsReached) {
  test::Random random(test::base_seed() + 1);
  for (int i = 0; i < 100 * test::intensity(); ++i) {
    const KeyWindow window = random_window(random);
    const std::int64_t block_size = random.integer(1, 40);
    const std::int64_t n_tokens = random.integer(1, 400);
    std::int64_t most = 0;
    for (std::int64_t n = 0; n < n_tokens; ++n) {
      auto held = seen_blocks(window, block_size, n);
      held.insert(n / block_size);
      most = std::max(most, static_cast<std::int64_t>(held.size()));
    }
    const std::int64_t bound = max_kept_blocks(window, block_size, n_tokens);
    ASSERT_LE(most, bound) << "seed " << test::base_seed() << " case " << i;
    ASSERT_GE(most + 2, bound) << "seed " << test::base_seed() << " case " << i;
  }
}

TEST(KeptBlocks, ACompactedHeadFillsSlots) {
  EXPECT_EQ(compacted_blocks(100, 1000, 64, 1000), 2);
  EXPECT_EQ(compacted_blocks(100, 1000, 64, 1028), 2);
  EXPECT_EQ(compacted_blocks(100, 1000, 64, 1029), 3);
}

// One layer of a model of two has windows of 100: 2 heads of 10 blocks, 2 of ceil(99 / 64) + 1.
TEST(OwnedBlocks, AModelsOwnWindowsCountAsWindows) {
  ModelSpec spec;
  spec.n_layers = 2;
  spec.n_kv_heads = 2;
  spec.attention_window = {ModelSpec::kNoWindow, 100};
  const HeadTable heads = dense_heads(spec);
  EXPECT_EQ(max_owned_blocks(heads, 64, {0, 640}, 64), 2 * 10 + 2 * (3 + 1));
  EXPECT_EQ(max_owned_blocks(heads, 64, {0, 640}, 100'000), 2 * 10 + 2 * 10);
  EXPECT_EQ(max_owned_blocks(heads, 64, {0, 64}, 64), 4);
  EXPECT_EQ(max_owned_blocks(heads, 64, {63, 65}, 64), 2 * 4);
  EXPECT_EQ(max_owned_blocks(heads, 64, {63, 63}, 64), 0);
}

// A step by hand: chunks into one layer after the other, forks that own what they make.
TEST(OwnedBlocks, AreNeverPassedWhileChunksAreRead) {
  test::Random random(test::base_seed() + 2);
  for (int i = 0; i < 100 * test::intensity(); ++i) {
    HeadTable heads(random.integer(1, 3), random.integer(1, 3));
    for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
      for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
        if (random.chance(0.3)) continue;
        heads.set(layer, kv_head,
                  {.see = SeeSinkRecent{random.integer(0, 60), random.integer(1, 120)}});
      }
    }
    const std::int64_t block_size = random.integer(1, 40);
    const std::int64_t begin = random.chance(0.5) ? 0 : random.integer(1, 300);
    const std::int64_t chunk_len = random.integer(1, 200);
    const std::int64_t first = begin / block_size;
    std::int64_t n = begin;
    std::int64_t most = 0;
    while (n < begin + 300) {
      const std::int64_t after = n + random.integer(1, chunk_len);
      const auto owned = [&](std::int64_t n_tokens, LayerId layer) {
        std::int64_t sum = 0;
        for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
          sum += n_tokens == begin
                     ? 0
                     : kept_blocks(heads.window(layer, kv_head), block_size, n_tokens, first);
        }
        return sum;
      };
      for (const LayerId at : IdRange<LayerId>(heads.n_layers())) {
        std::int64_t held = 0;
        for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
          held += owned(layer < at ? after : n, layer);
        }
        // The layer at hand: what it kept, and the chunk's blocks that are not among that.
        const std::int64_t whole = n == begin ? n / block_size : ceil_div(n, block_size);
        held += heads.n_kv_heads() * (ceil_div(after, block_size) - whole);
        most = std::max(most, held);
      }
      n = after;
    }
    ASSERT_LE(most, max_owned_blocks(heads, block_size, {begin, n}, chunk_len))
        << "seed " << test::base_seed() << " case " << i;
  }
}

}  // namespace
}  // namespace longhaul
