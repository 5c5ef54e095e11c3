// Caches of which only chosen slots were kept, against a list of tokens: random appends, choices
// and forks in every cache type. Positions and values are those of the list, bit for bit; the pool
// holds the blocks that the formula says; attention equals the reference over the kept tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/kv_append.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/kv_read.h"
#include "model/heads/kept_blocks.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/tolerance.h"
#include "worker/kv/sequence_cache.h"

namespace longhaul {
namespace {

using test::Random;

constexpr std::int64_t kHeadDim = 16;
constexpr std::int64_t kGroup = 2;

// What the cache stands for: one token after the other.
struct Token {
  std::int64_t position = 0;
  std::vector<float> k;
  std::vector<float> v;
};

// A cache and its list.
struct Pair {
  HeadCache cache;
  std::deque<Token> tokens = {};
};

std::vector<Token> read_back(const KvBlockShape& shape, const HeadCache& cache) {
  std::vector<Token> tokens;
  const std::vector<TokenPos> positions = cache.positions();
  for (const KvBlockRef& block : cache.blocks()) {
    for (std::int64_t slot = 0; slot < block.n_tokens; ++slot) {
      Token token{.position = positions[tokens.size()].value,
                  .k = std::vector<float>(kHeadDim),
                  .v = std::vector<float>(kHeadDim)};
      kv_read_k(shape, block.data, slot, {token.k.data(), {1, kHeadDim}});
      kv_read_v(shape, block.data, slot, {token.v.data(), {1, kHeadDim}});
      tokens.push_back(std::move(token));
    }
  }
  return tokens;
}

void append(const KvBlockShape& shape, std::int64_t n, Random& random, Pair& pair) {
  const auto k = random.normals(n * kHeadDim);
  const auto v = random.normals(n * kHeadDim);
  const std::int64_t first = pair.cache.next_position().value;
  const auto place = pair.cache.extend(n);
  ASSERT_TRUE(place);
  std::vector<std::byte*> blocks;
  for (std::int64_t i = 0; i < place->n_blocks; ++i) {
    blocks.push_back(pair.cache.writable_block(*place, i));
  }
  const KvAppendItem item{.k = {k.data(), {n, kHeadDim}},
                          .v = {v.data(), {n, kHeadDim}},
                          .blocks = blocks,
                          .first_slot = place->first_slot.value};
  kv_append(StreamRef::cpu(), {.shape = shape, .items = {&item, 1}});
  // What quantising makes of the new tokens is the list's.
  auto tokens = read_back(shape, pair.cache);
  for (std::int64_t i = 0; i < n; ++i) {
    Token& token = tokens[tokens.size() - static_cast<std::size_t>(n - i)];
    token.position = first + i;
    pair.tokens.push_back(std::move(token));
  }
}

void keep(Random& random, Pair& pair) {
  const double share = random.uniform(0, 1);
  const std::size_t run = static_cast<std::size_t>(random.integer(1, 30));
  std::vector<SlotIndex> slots;
  std::deque<Token> kept;
  bool is_kept = false;
  for (std::size_t i = 0; i < pair.tokens.size(); ++i) {
    if (i % run == 0) is_kept = random.chance(share);
    if (!is_kept) continue;
    slots.push_back({static_cast<std::int64_t>(i)});
    kept.push_back(pair.tokens[i]);
  }
  ASSERT_TRUE(pair.cache.keep(slots));
  pair.tokens = std::move(kept);
}

void expect_same_tokens(const KvBlockShape& shape, const Pair& pair) {
  const auto tokens = read_back(shape, pair.cache);
  ASSERT_EQ(tokens.size(), pair.tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(tokens[i].position, pair.tokens[i].position) << "slot " << i;
    ASSERT_EQ(tokens[i].k, pair.tokens[i].k) << "slot " << i;
    ASSERT_EQ(tokens[i].v, pair.tokens[i].v) << "slot " << i;
  }
}

// Queries of the newest tokens, which must not see each other's future, and of the next one.
void expect_attention_over_kept(const KvBlockShape& shape, std::int64_t n_newest, Random& random,
                                const Pair& pair) {
  const std::int64_t q_len = n_newest + 1;
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < q_len; ++i) {
    positions.push_back(pair.cache.next_position().value - n_newest + i);
  }
  const auto q = random.normals(q_len * kGroup * kHeadDim);
  SoftmaxState state(q_len, kGroup, kHeadDim);
  clear(StreamRef::cpu(), state.view());
  const AttentionItem item{.q = {q.data(), {q_len, kGroup, kHeadDim}},
                           .q_positions = positions,
                           .blocks = pair.cache.blocks(),
                           .state = state.view()};
  const float sm_scale = 0.25F;
  attention(StreamRef::cpu(), {.shape = shape, .sm_scale = sm_scale, .items = {&item, 1}});
  finish_attention(StreamRef::cpu(), {.state = state.view(), .out = state.o.view()});
  reference::AttentionCase want{.n_heads = kGroup,
                                .n_kv_heads = 1,
                                .head_dim = kHeadDim,
                                .q = {q.begin(), q.end()},
                                .q_positions = positions,
                                .k = {},
                                .v = {},
                                .k_positions = {},
                                .masks = {},
                                .sink_logits = {},
                                .sm_scale = sm_scale};
  for (const Token& token : pair.tokens) {
    want.k.insert(want.k.end(), token.k.begin(), token.k.end());
    want.v.insert(want.v.end(), token.v.begin(), token.v.end());
    want.k_positions.push_back(token.position);
  }
  const KvType coarser = std::max(shape.k_type, shape.v_type);
  const float* out = state.o.view().data();
  const auto tolerance = test::attention_tolerance(
      coarser == KvType::kF32 ? KvType::kF32 : KvType::kBf16, Device::kCpu);
  EXPECT_TRUE(test::close(std::vector<float>(out, out + q_len * kGroup * kHeadDim),
                          reference::attention(want).out, tolerance));
}

TEST(KeptSlots, AreAListOfTokensInEveryCacheType) {
  for (int round = 0; round < 48 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const KvBlockShape shape{
        .block_size = random.chance(0.5) ? 16 : 32,
        .head_dim = kHeadDim,
        .k_type = kPlainKvTypes[static_cast<std::size_t>(round) % kPlainKvTypes.size()],
        .v_type = kPlainKvTypes[static_cast<std::size_t>(round) / kPlainKvTypes.size() %
                                kPlainKvTypes.size()]};
    BlockPool pool(shape);
    {
      std::vector<Pair> pairs;
      pairs.push_back({HeadCache(pool)});
      for (int step = 0; step < 12; ++step) {
        const auto at = static_cast<std::size_t>(
            random.integer(0, static_cast<std::int64_t>(pairs.size()) - 1));
        std::int64_t n_newest = 0;
        if (random.chance(0.5)) {
          n_newest = random.chance(0.3) ? 1 : random.integer(1, 80);
          append(shape, n_newest, random, pairs[at]);
        } else if (random.chance(0.7) || pairs.size() == 3) {
          keep(random, pairs[at]);
        } else {
          pairs.push_back({pairs[at].cache.fork(), pairs[at].tokens});
        }
        if (HasFatalFailure()) return;
        for (const Pair& pair : pairs) expect_same_tokens(shape, pair);
        expect_attention_over_kept(shape, n_newest, random, pairs[at]);
        if (HasFailure()) return;
      }
    }
    ASSERT_EQ(pool.bytes_in_use(), 0U);
  }
}

TEST(KeptSlots, TakeTheBlocksThatTheFormulaSaysAndGiveTheOthersBack) {
  for (int round = 0; round < 40 * test::intensity(); ++round) {
    Random random(test::base_seed() * 500 + static_cast<std::uint64_t>(round));
    const KvBlockShape shape{
        .block_size = 16,
        .head_dim = kHeadDim,
        .k_type = kPlainKvTypes[static_cast<std::size_t>(round) % kPlainKvTypes.size()],
        .v_type = kPlainKvTypes[static_cast<std::size_t>(round) / kPlainKvTypes.size() %
                                kPlainKvTypes.size()]};
    BlockPool pool(shape);
    Pair pair{HeadCache(pool)};
    append(shape, random.integer(1, 300), random, pair);
    const std::int64_t n_cut = pair.cache.next_position().value;
    keep(random, pair);
    const std::int64_t n_kept = pair.cache.n_slots();
    for (int i = 0; i < 4; ++i) {
      const std::int64_t n_blocks =
          compacted_blocks(n_kept, n_cut, shape.block_size, pair.cache.next_position().value);
      ASSERT_EQ(pool.bytes_in_use(), static_cast<std::size_t>(n_blocks) * shape.bytes());
      append(shape, random.integer(1, 40), random, pair);
    }
    ASSERT_EQ(pair.cache.n_slots(), n_kept + pair.cache.next_position().value - n_cut);
  }
}

TEST(KeptSlots, WholeBlocksStayWhereTheyAre) {
  Random random(test::base_seed());
  const KvBlockShape shape{.block_size = 16, .head_dim = kHeadDim};
  BlockPool pool(shape);
  Pair pair{HeadCache(pool)};
  append(shape, 16 * 4 + 5, random, pair);
  const std::byte* third = pair.cache.blocks()[2].data;
  std::vector<SlotIndex> slots;  // blocks 2 and 4 whole: 16 and 5 tokens
  for (std::int64_t slot = 32; slot < 48; ++slot) slots.push_back({slot});
  for (std::int64_t slot = 64; slot < 69; ++slot) slots.push_back({slot});
  ASSERT_TRUE(pair.cache.keep(slots));
  EXPECT_EQ(pair.cache.blocks()[0].data, third);
  EXPECT_EQ(pool.n_blocks_in_use(), 2);
  EXPECT_EQ(pair.cache.positions().front(), (TokenPos{32}));
}

TEST(KeptSlots, AFullPoolChangesNothing) {
  Random random(test::base_seed());
  const KvBlockShape shape{.block_size = 16, .head_dim = kHeadDim};
  BlockPool pool(shape, 4 * shape.bytes());
  Pair pair{HeadCache(pool)};
  append(shape, 64, random, pair);
  std::vector<SlotIndex> slots;
  for (std::int64_t slot = 0; slot < 64; slot += 2) slots.push_back({slot});
  EXPECT_FALSE(pair.cache.keep(slots));
  EXPECT_FALSE(pair.cache.is_compacted());
  EXPECT_EQ(pool.n_blocks_in_use(), 4);
  expect_same_tokens(shape, pair);
}

TEST(KeptSlots, RefusesSlotsThatAreNotThereAndHeadsWithAWindow) {
  Random random(test::base_seed());
  const KvBlockShape shape{.block_size = 16, .head_dim = kHeadDim};
  BlockPool pool(shape);
  Pair pair{HeadCache(pool)};
  append(shape, 20, random, pair);
  const std::vector<SlotIndex> descending{{3}, {2}};
  EXPECT_THROW(pair.cache.keep(descending), Error);
  const std::vector<SlotIndex> beyond{{3}, {20}};
  EXPECT_THROW(pair.cache.keep(beyond), Error);

  HeadTable heads(1, 2);
  heads.set({0}, {1}, {.see = SeeSinkRecent{4, 8}});
  const CacheLayout layout(heads, {0, 1}, shape);
  SequenceCache sequence(layout, pool);
  ASSERT_TRUE(sequence.head({0}, {0}).extend(20));
  ASSERT_TRUE(sequence.head({0}, {1}).extend(20));
  const std::vector<SlotIndex> some{{3}, {17}};
  EXPECT_TRUE(sequence.keep({0}, {0}, some));
  EXPECT_THROW(sequence.keep({0}, {1}, some), Error);
  EXPECT_EQ(sequence.head({0}, {0}).n_slots(), 2);
  EXPECT_EQ(sequence.n_tokens(), 20);
}

}  // namespace
}  // namespace longhaul
