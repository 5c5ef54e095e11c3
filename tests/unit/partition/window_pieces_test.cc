// Which blocks of streaming heads travel, by hand.
#include "partition/window_pieces.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

// A chunk over equal ranks in blocks of 4 tokens.
struct Cut {
  Cut(std::int64_t n_ranks, Extent tokens, std::int64_t sink, std::int64_t recent)
      : slabs(slabs_of_chunk(
            IndexedVector<RingPos, std::int64_t>(static_cast<std::size_t>(n_ranks), 1), tokens, 4)),
        queries(slabs_by_owner(slabs)),
        window{.sink = sink, .recent = recent} {}
  WindowChunk chunk() const { return {slabs, queries, window, 4}; }
  std::vector<Slab> slabs;
  IndexedVector<RingPos, std::vector<Extent>> queries;
  KeyWindow window;
};

using Pieces = std::vector<WindowPiece>;
const std::vector<RingPos> kHomeAtOne{{1}};

TEST(WindowPieces, TheExampleOfTheHeader) {
  const Cut cut(2, {40, 56}, 4, 5);
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{1}, RingPos{0}),
            (Pieces{{0, {0, 4}, true}, {0, {36, 40}, true}, {0, {48, 52}, false}}));
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{0}, RingPos{1}),
            (Pieces{{0, {40, 44}, false}, {0, {52, 56}, false}}));
}

TEST(WindowPieces, ASlabShorterThanTheWindowHearsFromSeveralRanks) {
  const Cut cut(3, {0, 48}, 0, 30);  // slabs of 8 tokens: 0 1 2 2 1 0
  // Slab 4 of rank 1 begins at 32 and sees 3..31: slab 0 and slabs 2, 3; slab 1 is its own.
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{0}, RingPos{1}),
            (Pieces{{0, {0, 4}, false},
                    {0, {4, 8}, false},
                    {0, {40, 44}, false},  // to keep
                    {0, {44, 48}, false}}));
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{2}, RingPos{1}).size(), 4U);
}

TEST(WindowPieces, AChunkMayStartInsideABlock) {
  const Cut cut(2, {10, 24}, 0, 3);  // slabs [10,12) [12,16) [16,20) [20,24)
  // Rank 0 sees 8, 9 of the home's block 2; its own part of that block is not sent to it.
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{1}, RingPos{0}),
            (Pieces{{0, {8, 10}, true}, {0, {16, 20}, false}}));
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{0}, RingPos{1}),
            (Pieces{{0, {10, 12}, false}, {0, {20, 24}, false}}));
}

TEST(WindowPieces, KeptAreTheSinkTheWindowAndThePartialLastBlock) {
  EXPECT_EQ(kept_pieces(Cut(1, {0, 23}, 6, 4).chunk()),
            (std::vector<Extent>{{0, 4}, {4, 8}, {20, 23}}));
  EXPECT_EQ(kept_pieces(Cut(1, {0, 22}, 0, 1).chunk()), (std::vector<Extent>{{20, 22}}));
  EXPECT_EQ(kept_pieces(Cut(1, {0, 24}, 0, 1).chunk()), (std::vector<Extent>{}));
}

TEST(WindowPieces, ARankWithoutQueriesGetsNothingButWhatItKeeps) {
  Cut cut(2, {40, 56}, 4, 5);
  for (auto& queries : cut.queries) queries.clear();
  EXPECT_TRUE(window_pieces(cut.chunk(), kHomeAtOne, RingPos{1}, RingPos{0}).empty());
  EXPECT_EQ(window_pieces(cut.chunk(), kHomeAtOne, RingPos{0}, RingPos{1}),
            (Pieces{{0, {52, 56}, false}}));
}

TEST(WindowPieces, BytesAreThoseOfThePieces) {
  const KvFormat kv{KvType::kBf16, KvType::kBf16, 4, 8};
  const std::vector<RingPos> homes{{0}, {3}, {1}, {3}};
  for (const std::int64_t begin : {0, 6, 64}) {
    for (const std::int64_t recent : {1, 7, 40}) {
      const Cut cut(4, {begin, begin + 61}, 6, recent);
      const auto sent = window_bytes_sent(cut.chunk(), homes, kv);
      for (const RingPos from : IdRange<RingPos>(4)) {
        std::size_t n_pieces = 0;
        for (const RingPos to : IdRange<RingPos>(4)) {
          if (to != from) n_pieces += window_pieces(cut.chunk(), homes, from, to).size();
        }
        EXPECT_EQ(sent[from], static_cast<std::int64_t>(n_pieces) * kv.block_bytes());
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
