// A cache's blocks in the GPU's memory are those of its list, whatever happens to the cache; and
// attention over them gives the bits that it gives over the list.
#include <algorithm>
#include <cmath>
#include <list>

#include "kernels/attention.h"
#include "kernels/device_tensor.h"
#include "kernels/kv_append.h"
#include "tests/gpu/worker_plays.h"
#include "worker/kv/head_cache.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kTabledDim = 64;

class BlockTables : public OnGpu {};

// Appends as the worker does: kv_append writes the blocks' addresses.
class TabledCaches {
 public:
  explicit TabledCaches(KvType type)
      : queue_(kGpu),
        pool_({.block_size = 16, .head_dim = kTabledDim, .k_type = type, .v_type = type}, {},
              queue_.stream()) {}

  StreamRef stream() const { return queue_.stream(); }
  BlockPool& pool() { return pool_; }
  const KvBlockShape& shape() const { return pool_.shape(); }

  void append(HeadCache& cache, std::int64_t n, Random& random) {
    const DeviceTensor<float, 2> values(stream(), {n, kTabledDim});
    const std::vector<float> on_host = random.normals(n * kTabledDim);
    copy_from_host(stream(), reinterpret_cast<std::byte*>(values.data()),
                   std::as_bytes(std::span(on_host)));
    const auto place = cache.extend(n);
    ASSERT_TRUE(place);
    std::vector<std::byte*> blocks;
    for (std::int64_t i = 0; i < place->n_blocks; ++i)
      blocks.push_back(cache.writable_block(*place, i));
    const KvAppendItem item = {.k = values.view(),
                               .v = values.view(),
                               .blocks = blocks,
                               .first_slot = place->first_slot.value,
                               .entries = cache.entries_to_write(*place)};
    kv_append(stream(), {.shape = shape(), .items = {&item, 1}});
    queue_.stream().cuda_stream().synchronise();  // the values go
  }

  // The addresses that a table names, without those that are gone.
  std::vector<const std::byte*> addresses(const BlockTable& table) const {
    std::vector<const std::byte*> out;
    const std::int64_t n = ceil_div(table.n_tokens, shape().block_size);
    for (std::int64_t i = 0; i < n; ++i) {
      if (table.gone.contains(i)) continue;
      const auto* from = i < table.n_shared ? table.shared + i : table.own + (i - table.n_shared);
      const std::byte* address = nullptr;
      copy_to_host(stream(), std::as_writable_bytes(std::span(&address, 1)),
                   reinterpret_cast<const std::byte*>(from));
      out.push_back(address);
    }
    return out;
  }

  void expect_equal(const HeadCache& cache) const {
    if (cache.blocks().empty()) return;
    const std::optional<BlockTable> table = cache.table();
    ASSERT_TRUE(table);
    std::vector<const std::byte*> listed;
    for (const KvBlockRef& block : cache.blocks()) listed.push_back(block.data);
    EXPECT_EQ(addresses(*table), listed);
    const KvBlockRef& last = cache.blocks().back();
    EXPECT_EQ(table->first_position + table->n_tokens, last.first_position + last.n_tokens);
    const KvBlockRef& first = cache.blocks().front();
    const bool is_first_gone = !table->gone.empty() && table->gone.begin == 0;
    EXPECT_EQ(table->first_position + (is_first_gone ? table->gone.end * 16 : 0),
              first.first_position);
  }

 private:
  DeviceQueue queue_;
  BlockPool pool_;
};

std::vector<SlotIndex> some_slots(Random& random, std::int64_t n) {
  std::vector<SlotIndex> slots;
  for (std::int64_t slot = 0; slot < n; ++slot)
    if (slot == 0 || random.chance(0.8)) slots.push_back({slot});
  return slots;
}

// Caches of a head that sees all: tokens come and are taken back, forks come and go, slots are kept
// and forgotten.
TEST_F(BlockTables, FollowForksGuessesAndKeptSlots) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    TabledCaches caches(KvType::kF32);
    Random random(seed);
    std::list<HeadCache> all;
    all.emplace_back(caches.pool());
    for (int i = 0; i < 120; ++i) {
      auto at = all.begin();
      std::advance(at, random.integer(0, std::ssize(all) - 1));
      const std::int64_t what = random.integer(0, 19);
      if (what < 12 || at->n_slots() < 3) {
        caches.append(*at, what < 8 ? random.integer(1, 4) : random.integer(1, 200), random);
      } else if (what < 15 && !at->is_compacted()) {
        at->take_back({at->next_position().value -
                       random.integer(1, std::min<std::int64_t>(40, at->n_slots() - 1))});
      } else if (what < 17) {
        all.push_back(at->fork());
      } else if (what == 17 && all.size() > 1) {
        all.erase(at);
      } else if (what == 18) {
        EXPECT_TRUE(at->keep(some_slots(random, at->n_slots())));
      } else if (what == 19) {
        EXPECT_TRUE(at->forget({random.integer(0, at->n_slots() - 1)}));
      }
      if (i % 3 > 0) continue;  // changes add up
      for (const HeadCache& cache : all) caches.expect_equal(cache);
    }
  }
}

// Of a head with a window: blocks go from the middle, or from the beginning.
TEST_F(BlockTables, FollowBlocksThatAreGivenUp) {
  for (const std::int64_t sink : {0, 20}) {
    TabledCaches caches(KvType::kF32);
    Random random(5);
    HeadCache cache(caches.pool(), BlockUse::kStreaming);
    std::optional<HeadCache> fork;
    const std::int64_t begin = ceil_div(sink, 16) * 16;
    for (int i = 0; i < 60; ++i) {
      caches.append(cache, random.integer(1, 20), random);
      cache.free_hidden({begin, cache.next_position().value - 40});
      caches.expect_equal(cache);
      if (i == 30) fork.emplace(cache.fork());
      if (fork) {
        caches.append(*fork, 1, random);
        fork->free_hidden({begin, fork->next_position().value - 40});
        caches.expect_equal(*fork);
      }
    }
    EXPECT_LT(cache.blocks().size(), 8U);
  }
}

// Forks of a document name the same memory for it, also forks of a fork that has grown.
TEST_F(BlockTables, ForksNameTheSameMemory) {
  TabledCaches caches(KvType::kF32);
  Random random(6);
  HeadCache parent(caches.pool());
  caches.append(parent, 100, random);
  HeadCache child = parent.fork();
  caches.append(child, 30, random);
  caches.append(parent, 5, random);
  EXPECT_EQ(child.table()->shared, parent.table()->shared);
  EXPECT_EQ(child.table()->n_shared, 6);
  EXPECT_EQ(parent.table()->n_shared, 6);
  caches.append(child, 300, random);
  HeadCache grandchild = child.fork();
  EXPECT_EQ(grandchild.table()->shared, child.table()->shared);
  EXPECT_EQ(grandchild.table()->n_shared, 26);
  for (const HeadCache* cache : {&parent, &child, &grandchild}) caches.expect_equal(*cache);
}

// Blocks that are not of one head's consecutive numbers have no table: those of a ring.
TEST_F(BlockTables, AreNotMadeOfBlocksWithHoles) {
  TabledCaches caches(KvType::kF32);
  HeadCache cache(caches.pool());
  ASSERT_TRUE(cache.store({0, 16}));
  ASSERT_TRUE(cache.store({48, 64}));
  EXPECT_TRUE(cache.table());  // one hole
  ASSERT_TRUE(cache.store({96, 112}));
  EXPECT_FALSE(cache.table());
  ASSERT_TRUE(cache.store({64, 80}));
  ASSERT_TRUE(cache.store({80, 96}));
  caches.expect_equal(cache);
}

// States of some queries against caches, by table or by list.
std::vector<float> attend(const TabledCaches& caches, std::span<const HeadCache* const> heads,
                          const AttentionMask& mask, bool by_table) {
  const StreamRef stream = caches.stream();
  const auto n = static_cast<std::int64_t>(heads.size());
  constexpr std::int64_t kHeads = 4;
  Random random(9);
  const DeviceTensor<float, 3> q(stream, {n, kHeads, kTabledDim});
  const std::vector<float> q_on_host = random.normals(q.size());
  copy_from_host(stream, reinterpret_cast<std::byte*>(q.data()),
                 std::as_bytes(std::span(q_on_host)));
  const DeviceTensor<float, 3> o(stream, {n, kHeads, kTabledDim});
  const DeviceTensor<float, 2> m(stream, {n, kHeads});
  const DeviceTensor<float, 2> l(stream, {n, kHeads});
  const SoftmaxStateView state = {o.view(), m.view(), l.view()};
  clear(stream, state);
  std::vector<std::int64_t> positions;
  for (const HeadCache* head : heads) positions.push_back(head->next_position().value - 1);
  std::vector<AttentionItem> items;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<std::size_t>(i);
    items.push_back({.q = q.view().slice(0, {i, i + 1}),
                     .q_positions = std::span(positions).subspan(index, 1),
                     .blocks = heads[index]->blocks(),
                     .table = by_table ? heads[index]->table() : std::nullopt,
                     .mask = mask,
                     .state = state.tokens({i, i + 1})});
  }
  attention(stream, {.shape = caches.shape(), .sm_scale = 0.125F, .items = items});
  std::vector<float> out(static_cast<std::size_t>(o.size()));
  copy_to_host(stream, std::as_writable_bytes(std::span(out)),
               reinterpret_cast<const std::byte*>(o.data()));
  std::vector<float> sums(static_cast<std::size_t>(l.size()));
  copy_to_host(stream, std::as_writable_bytes(std::span(sums)),
               reinterpret_cast<const std::byte*>(l.data()));
  out.insert(out.end(), sums.begin(), sums.end());
  return out;
}

TEST_F(BlockTables, AttentionGivesTheBitsThatItGivesOverLists) {
  for (const KvType type : {KvType::kBf16, KvType::kInt8, KvType::kFp8, KvType::kInt4}) {
    TabledCaches caches(type);
    Random random(8);
    HeadCache document(caches.pool());
    caches.append(document, 1700, random);
    std::list<HeadCache> forks;
    std::vector<const HeadCache*> heads;
    for (int i = 0; i < 9; ++i) {
      forks.push_back(document.fork());
      caches.append(forks.back(), 1 + 7 * i, random);
      heads.push_back(&forks.back());
    }
    HeadCache little(caches.pool());
    caches.append(little, 5, random);
    heads.push_back(&little);
    HeadCache windowed(caches.pool());
    caches.append(windowed, 900, random);
    windowed.free_hidden({32, 700});
    const HeadCache* const window[] = {&windowed};
    for (const bool is_window : {false, true}) {
      const auto of = is_window ? std::span<const HeadCache* const>(window)
                                : std::span<const HeadCache* const>(heads);
      const AttentionMask mask =
          is_window ? AttentionMask{.sink = 20, .recent = 150} : AttentionMask{};
      const std::vector<float> got = attend(caches, of, mask, /*by_table=*/true);
      EXPECT_EQ(got, attend(caches, of, mask, /*by_table=*/false)) << name_of(type);
      EXPECT_TRUE(std::ranges::all_of(got, [](float x) { return std::isfinite(x); }));
    }
  }
}

}  // namespace
}  // namespace longhaul::test
