// What travels, by hand.
#include "partition/ring_bytes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::first_heads;
using test::llama3_8b;

const KvFormat kBf16{KvType::kBf16, KvType::kBf16, 64, 128};

Stage equal_ring(std::int64_t n_ranks) {
  Stage stage;
  stage.layers = {0, 32};
  for (std::int64_t r = 0; r < n_ranks; ++r) {
    stage.ring.push_back({r});
    stage.token_share.push_back(Stage::kTokenShareTotal / n_ranks);
  }
  return stage;
}

TEST(RingBytes, ChunkKeysMakeEveryHop) {
  const Stage stage = equal_ring(4);
  const auto slabs = slabs_of_chunk(stage, 8192, 0, 64);  // 128 blocks, 32 of each rank
  const auto sent = chunk_key_bytes_sent(slabs, 4, kBf16);
  for (const std::int64_t bytes : sent) EXPECT_EQ(bytes, (128 - 32) * 4 * 64 * 512);
}

TEST(RingBytes, AMillionTokensDenseOnTwoRanksAre4GiBALayer) {
  // SEMANTICS: 4 GiB round the ring for each layer; each byte makes P - 1 = 1 hop.
  const Stage stage = equal_ring(2);
  const ModelSpec spec = llama3_8b();
  const LayerHeads heads{.n_all = 8, .n_windowed = 0};
  const auto traffic = chunk_traffic(stage, spec, heads, kBf16, {0, 1 << 20});
  EXPECT_EQ(traffic.chunk_keys, std::int64_t{4} << 30);
  EXPECT_EQ(traffic.history_keys, 0);
  EXPECT_EQ(traffic.history_queries, 0);
  EXPECT_EQ(traffic.halo + traffic.sink + traffic.window_homes, 0);
}

TEST(RingBytes, HistoryByKeysAndByQueries) {
  const Stage stage = equal_ring(4);
  const LayerHeads heads{.n_all = 2, .n_windowed = 0};
  const auto traffic = chunk_traffic(stage, llama3_8b(), heads, kBf16, {65536, 65536 + 8192});
  EXPECT_EQ(traffic.history_keys, 3LL * 2 * 65536 * 512);
  // 2 heads x 4 query heads; q of 128 and m, l, o of 130 floats, 3 hops, and the state once more.
  EXPECT_EQ(traffic.history_queries, 8192LL * 8 * 4 * (3 * (128 + 130) + 130));
}

TEST(RingBytes, HaloOfStreamingHeads) {
  const Stage stage = equal_ring(4);
  const LayerHeads heads{.n_all = 0, .n_windowed = 8, .window = {false, 128, 256}};
  const auto first = chunk_traffic(stage, llama3_8b(), heads, kBf16, {0, 8192});
  // 8 slabs, 7 boundaries, one of them inside a rank: 255 keys are 4 blocks of 8 heads.
  EXPECT_EQ(first.halo, 6LL * 4 * 8 * 64 * 512);
  EXPECT_EQ(first.chunk_keys, 0);
  EXPECT_EQ(first.history_keys, 0);
  EXPECT_EQ(first.history_queries, 0);
  EXPECT_EQ(first.sink, 3LL * 2 * 8 * 64 * 512);      // 2 sink blocks to 3 ranks
  EXPECT_EQ(first.window_homes, 4LL * 8 * 64 * 512);  // the newest 255 keys to their homes
  const auto second = chunk_traffic(stage, llama3_8b(), heads, kBf16, {8192, 16384});
  EXPECT_EQ(second.sink, 0);
  EXPECT_EQ(second.window_homes, 2LL * 4 * 8 * 64 * 512);  // and from their homes to slab 0
  const auto sent = halo_bytes_sent(slabs_of_chunk(stage, 8192, 0, 64), heads, kBf16);
  EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}), first.halo);
  EXPECT_EQ(sent[0], 4LL * 8 * 64 * 512);  // slab 0 sends, slab 7 does not
  EXPECT_EQ(sent[1], 2 * sent[0]);
}

TEST(RingBytes, OneRankSendsNothing) {
  const LayerHeads heads{.n_all = 4, .n_windowed = 4, .window = {false, 128, 256}};
  const auto traffic = chunk_traffic(equal_ring(1), llama3_8b(), heads, kBf16, {64, 128});
  EXPECT_EQ(traffic.chunk_keys + traffic.halo + traffic.window_homes + traffic.sink +
                traffic.history_keys + traffic.history_queries,
            0);
  EXPECT_EQ(decode_traffic(llama3_8b(), 1, 8).total, 0);
}

TEST(RingBytes, Decode) {
  const DecodeTraffic traffic = decode_traffic(llama3_8b(), 4, 2);
  EXPECT_EQ(traffic.gather_bytes, 2 * 32 * 2 * 4);
  EXPECT_EQ(traffic.reduce_bytes, 2 * 4096 * 4);
  EXPECT_EQ(traffic.total, 4 * 3 * 512 + 2 * 2 * 3 * 32768);
}

}  // namespace
}  // namespace longhaul
