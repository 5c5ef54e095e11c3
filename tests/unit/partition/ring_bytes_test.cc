// What travels, by hand.
#include "partition/ring_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  // Every head at home with rank 1 of 4.
  const Home home{{{Rank{std::min<std::int64_t>(1, n_ranks - 1)}, 1}}};
  stage.home.assign(32, IndexedVector<KvHeadId, Home>(8, home));
  return stage;
}

// Llama-3-8B of which n_retrieval KV heads of each layer keep everything, in one ring.
ChunkTraffic traffic_of(std::int64_t n_ranks, std::int64_t n_retrieval, Extent tokens) {
  Plan plan;
  plan.kv = kBf16;
  plan.heads = first_heads(llama3_8b(), n_retrieval);
  return chunk_traffic(plan, equal_ring(n_ranks), llama3_8b(), LayerId{0}, tokens);
}

TEST(RingBytes, ChunkKeysMakeEveryHop) {
  const Stage stage = equal_ring(4);
  const auto slabs = slabs_of_chunk(stage, 8192, 0, 64);  // 128 blocks, 32 of each rank
  const auto sent = chunk_key_bytes_sent(slabs, 4, kBf16);
  for (const std::int64_t bytes : sent) EXPECT_EQ(bytes, (128 - 32) * 4 * 64 * 512);
}

TEST(RingBytes, AMillionTokensDenseOnTwoRanksAre4GiBALayer) {
  // SEMANTICS: 4 GiB round the ring for each layer; each byte makes P - 1 = 1 hop.
  const auto traffic = traffic_of(2, 8, {0, 1 << 20});
  EXPECT_EQ(traffic.chunk_keys, std::int64_t{4} << 30);
  EXPECT_EQ(traffic.history_keys, 0);
  EXPECT_EQ(traffic.history_queries, 0);
  EXPECT_EQ(traffic.windows, 0);
}

TEST(RingBytes, HistoryByKeysAndByQueries) {
  const auto traffic = traffic_of(4, 2, {65536, 65536 + 8192});
  EXPECT_EQ(traffic.history_keys, 3LL * 2 * 65536 * 512);
  // 2 heads x 4 query heads; q of 128 and m, l, o of 130 floats, 3 hops, and the state once more.
  EXPECT_EQ(traffic.history_queries, 8192LL * 8 * 4 * (3 * (128 + 130) + 130));
}

TEST(RingBytes, StreamingHeadsSendSinkAndWindowOverSlabEdges) {
  constexpr std::int64_t kBlocks = 8LL * 64 * 512;  // one block of each head
  // 8 slabs of 16 blocks. Before each slab but those whose owner made the one before: 255 keys, 4
  // blocks; 2 sink blocks to 3 ranks; the newest 4 blocks to the home.
  const auto first = traffic_of(4, 0, {0, 8192});
  EXPECT_EQ(first.windows, (6 * 4 + 3 * 2 + 4) * kBlocks);
  EXPECT_EQ(first.chunk_keys, 0);
  EXPECT_EQ(first.history_keys, 0);
  EXPECT_EQ(first.history_queries, 0);
  // Later the home has the sink, and the window before slab 0.
  EXPECT_EQ(traffic_of(4, 0, {8192, 16384}).windows, (6 * 4 + 3 * 2 + 4 + 4) * kBlocks);
}

TEST(RingBytes, OneRankSendsNothing) {
  const auto traffic = traffic_of(1, 4, {64, 128});
  EXPECT_EQ(traffic.chunk_keys + traffic.windows + traffic.history_keys + traffic.history_queries,
            0);
  EXPECT_EQ(decode_traffic(equal_ring(1), llama3_8b(), LayerId{0}, 8, DType::kBf16).total, 0);
}

TEST(RingBytes, Decode) {
  Stage stage = equal_ring(4);
  const DecodeTraffic whole = decode_traffic(stage, llama3_8b(), LayerId{0}, 2, DType::kBf16);
  EXPECT_EQ(whole.gather_bytes, 0);  // every head has one home
  EXPECT_EQ(whole.reduce_bytes, 2 * 4096 * 4);
  EXPECT_EQ(whole.total, 2 * 4 * 3 * 32768);  // in one round
  stage.home[0][KvHeadId{2}].shares.push_back({Rank{3}, 1});
  const DecodeTraffic split = decode_traffic(stage, llama3_8b(), LayerId{0}, 8, DType::kBf16);
  EXPECT_EQ(split.gather_bytes, 8 * 4 * 2 * 4);
  EXPECT_EQ(split.total, 4 * 3 * 256 + 2 * 2 * 3 * 131072);  // in two rounds
}

TEST(RingBytes, Int8WeightsAddUpTheHeadsThatHaveSeveralHomes) {
  Stage stage = equal_ring(4);
  EXPECT_EQ(decode_traffic(stage, llama3_8b(), LayerId{0}, 2, DType::kI8).join_bytes, 0);
  stage.home[0][KvHeadId{2}].shares.push_back({Rank{3}, 1});
  const DecodeTraffic traffic = decode_traffic(stage, llama3_8b(), LayerId{0}, 2, DType::kI8);
  EXPECT_EQ(traffic.join_bytes, 2 * 4 * 128 * 4);  // o of 4 query heads of 2 sequences
  EXPECT_EQ(traffic.total, 4 * 3 * (64 + 2 * 32768 + 4096));
}

}  // namespace
}  // namespace longhaul
