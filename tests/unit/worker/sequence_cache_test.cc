// Bytes in use against the closed formula, through appending, forks, trims and drops.
#include "worker/kv/sequence_cache.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "model/heads/kept_blocks.h"
#include "tests/support/fork_blocks.h"
#include "tests/support/random.h"

namespace longhaul {
namespace {

struct Model {
  ModelSpec spec;
  HeadTable heads;
  KvBlockShape shape;
  Extent layers() const { return {0, spec.n_layers}; }
  std::size_t sequence_bytes(std::int64_t n_tokens) const {
    return static_cast<std::size_t>(sequence_blocks(heads, layers(), shape.block_size, n_tokens)) *
           shape.bytes();
  }
  std::size_t fork_bytes(std::int64_t n_shared, std::int64_t n_tokens) const {
    return static_cast<std::size_t>(
               test::fork_blocks(heads, layers(), shape.block_size, n_shared, n_tokens)) *
           shape.bytes();
  }
};

Model random_model(test::Random& random) {
  Model m;
  m.spec.n_layers = random.integer(1, 3);
  m.spec.n_kv_heads = random.integer(1, 3);
  m.spec.n_heads = m.spec.n_kv_heads;
  m.spec.head_dim = 4;
  for (std::int64_t i = 0; i < m.spec.n_layers; ++i) {
    m.spec.attention_window.push_back(random.chance(0.3) ? random.integer(1, 60)
                                                         : ModelSpec::kNoWindow);
  }
  HeadRoles roles = HeadRoles::all_retrieval(m.spec.n_layers, m.spec.n_kv_heads);
  for (HeadRole& role : roles.roles) {
    if (random.chance(0.6)) role = HeadRole::kStreaming;
  }
  roles.sink = random.integer(0, 40);
  roles.recent = random.integer(1, 70);
  m.heads = duo_attention_heads(m.spec, roles);
  m.shape = {.block_size = random.chance(0.5) ? 16 : 32,
             .head_dim = 4,
             .k_type = random.chance(0.5) ? KvType::kF32 : KvType::kBf16,
             .v_type = random.chance(0.5) ? KvType::kF32 : KvType::kBf16};
  return m;
}

// Ids in the wrong order, or of another kind, and plain numbers do not compile.
template <typename... Ids>
concept NamesAHead = requires(const SequenceCache& cache, Ids... ids) {
  cache.head(ids...);
};
static_assert(NamesAHead<LayerId, KvHeadId>);
static_assert(!NamesAHead<KvHeadId, LayerId>);
static_assert(!NamesAHead<std::int64_t, std::int64_t>);
template <typename Position>
concept NamesANextToken = requires(HeadCache& cache, Position next) {
  cache.advance_to(next);
};
static_assert(NamesANextToken<TokenPos>);
static_assert(!NamesANextToken<SlotIndex> && !NamesANextToken<std::int64_t>);

// What a step does to the caches.
void append(SequenceCache& cache, std::int64_t n_tokens) {
  const CacheLayout& layout = cache.layout();
  for (const LayerId layer : layout.layer_ids()) {
    for (const KvHeadId head : layout.kv_head_ids()) {
      ASSERT_TRUE(cache.head(layer, head).extend(n_tokens));
    }
    cache.trim(layer, cache.head(layer, {0}).next_position());
  }
}

TEST(CacheSize, FormulaEqualsBytesInUseThroughForksAndDrops) {
  for (int round = 0; round < 60 * test::intensity(); ++round) {
    const std::uint64_t seed = test::base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    test::Random random(seed);
    const Model m = random_model(random);
    const CacheLayout layout(m.heads, m.layers(), m.shape);
    BlockPool pool(m.shape);
    {
      SequenceCache document(layout, pool);
      std::int64_t n = 0;
      for (int i = 0; i < 6; ++i) {
        const std::int64_t n_new = random.chance(0.5) ? 1 : random.integer(1, 150);
        append(document, n_new);
        n += n_new;
        ASSERT_EQ(pool.bytes_in_use(), m.sequence_bytes(n)) << n << " tokens";
        ASSERT_EQ(document.n_tokens(), n);
        ASSERT_EQ(document.bytes(), pool.bytes_in_use());
      }
      std::vector<std::optional<SequenceCache>> forks(3);
      std::vector<std::int64_t> lengths(3, n);
      const auto expected = [&] {
        std::size_t sum = m.sequence_bytes(n);
        for (std::size_t f = 0; f < forks.size(); ++f) {
          if (forks[f]) sum += m.fork_bytes(n, lengths[f]);
        }
        return sum;
      };
      for (auto& fork : forks) fork.emplace(document.fork());
      ASSERT_EQ(pool.bytes_in_use(), expected());
      for (int i = 0; i < 12; ++i) {
        const auto f = static_cast<std::size_t>(random.integer(0, 2));
        const std::int64_t n_new = random.chance(0.5) ? 1 : random.integer(1, 60);
        append(*forks[f], n_new);
        lengths[f] += n_new;
        ASSERT_EQ(pool.bytes_in_use(), expected());
        ASSERT_EQ(forks[f]->bytes(), m.sequence_bytes(lengths[f]));
      }
      forks[1].reset();
      ASSERT_EQ(pool.bytes_in_use(), expected());
      // The parent may go first: what is left is a sequence like any other.
      forks[2].reset();
      SequenceCache only = std::move(*forks[0]);
      document = SequenceCache(layout, pool);
      forks[0].reset();
      ASSERT_EQ(pool.bytes_in_use(), m.sequence_bytes(lengths[0]));
    }
    ASSERT_EQ(pool.bytes_in_use(), 0U);
    ASSERT_EQ(pool.bytes_reserved(), 0U);
  }
}

TEST(SequenceCache, TrimmedHeadsKeepWhatTheNextQuerySees) {
  test::Random random(test::base_seed());
  for (int round = 0; round < 20; ++round) {
    const Model m = random_model(random);
    const CacheLayout layout(m.heads, m.layers(), m.shape);
    BlockPool pool(m.shape);
    SequenceCache cache(layout, pool);
    append(cache, random.integer(1, 300));
    const std::int64_t query = cache.n_tokens();
    for (const LayerId layer : layout.layer_ids()) {
      for (const KvHeadId head : layout.kv_head_ids()) {
        std::vector<bool> is_there(static_cast<std::size_t>(query));
        for (const KvBlockRef& block : cache.head(layer, head).blocks()) {
          for (std::int64_t i = 0; i < block.n_tokens; ++i) {
            is_there[static_cast<std::size_t>(block.first_position + i)] = true;
          }
        }
        const AttentionMask mask = layout.mask(layer, head);
        for (std::int64_t key = 0; key < query; ++key) {
          if (key < mask.sink || query - key < mask.recent) {
            EXPECT_TRUE(is_there[static_cast<std::size_t>(key)]) << "position " << key;
          }
        }
      }
    }
  }
}

// Planning counts with room_for_sums.
TEST(AttentionMass, TakesNoMoreThanIsPlannedHoweverTokensCome) {
  for (const std::int64_t step : {1, 7, 100, 5000}) {
    AttentionMass mass;
    for (std::int64_t n = step; n <= 20000; n += step) {
      mass.own(n);
      ASSERT_LE(mass.bytes(), static_cast<std::size_t>(room_for_sums(n)) * sizeof(double)) << n;
    }
    AttentionMass fork = mass;
    const auto n = static_cast<std::int64_t>(mass.sums().size());
    fork.own(n + 1).back() = 1;
    EXPECT_EQ(static_cast<std::int64_t>(mass.sums().size()), n);
    EXPECT_LE(fork.bytes(), static_cast<std::size_t>(room_for_sums(n + 1)) * sizeof(double));
    const std::vector<SlotIndex> kept = {SlotIndex{0}, SlotIndex{n}};
    fork.keep(kept);
    EXPECT_EQ(fork.bytes(), 2 * sizeof(double));
    EXPECT_EQ(fork.sums().back(), 1);
  }
}

}  // namespace
}  // namespace longhaul
