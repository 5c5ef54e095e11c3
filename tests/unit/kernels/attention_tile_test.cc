// The places of values in tiles of the GPU's attention kernels, as arithmetic: each value of a sum
// once, both sides alike, words where blocks have them, and shared memory read without waiting.
#include "kernels/cuda/attention_tile.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/kv_type.h"

namespace longhaul::test {
namespace {

constexpr KvType kTypes[] = {KvType::kBf16, KvType::kInt8,  KvType::kFp8,
                             KvType::kInt4, KvType::kKivi4, KvType::kKivi2};
constexpr int kSteps = 8;  // products of 16 values

TEST(AttentionTile, LanesHoldEachValueOfASumOnce) {
  for (const KvType type : kTypes) {
    std::set<int> values;
    for (int step = 0; step < kSteps; ++step) {
      for (int t = 0; t < 4; ++t) {
        for (int i = 0; i < 4; ++i) values.insert(cuda::value_of_lane(type, step, t, i));
      }
    }
    EXPECT_EQ(values.size(), 16U * kSteps) << name_of(type);
    EXPECT_EQ(*values.begin(), 0);
    EXPECT_EQ(*values.rbegin(), 16 * kSteps - 1);
  }
}

// Value v of a row of words is in word v / lanes, at v % lanes (kernels/kv_block.h).
TEST(AttentionTile, ALaneFindsItsValuesInItsWords) {
  for (const KvType type : kTypes) {
    const int lanes = cuda::lanes_of(type);
    for (int step = 0; step < kSteps; ++step) {
      for (int t = 0; t < 4; ++t) {
        for (int i = 0; i < 4; ++i) {
          const int value = cuda::value_of_lane(type, step, t, i);
          const int second = type == KvType::kBf16 ? i / 2 * 4 : 0;
          const int word = cuda::word_row_of_lane(type, step, t) + second;
          const int in_word = type == KvType::kBf16    ? i % 2
                              : lanes == 4             ? i
                              : type == KvType::kKivi2 ? t % 2 * 8 + step % 2 * 4 + i
                                                       : step % 2 * 4 + i;
          EXPECT_EQ(value, word * lanes + in_word) << name_of(type);
          if (lanes < 8) continue;
          EXPECT_EQ(cuda::shift_of_lane(type, step, t) + 8 * i, cuda::lane_shift(lanes, in_word))
              << name_of(type);
        }
      }
    }
  }
}

// A score's column becomes a weight's row without moving to another thread: lane t has columns 2t
// and 2t + 1 of groups 2s and 2s + 1, and needs keys value_of_lane(s, t, 0 .. 3) in that order.
TEST(AttentionTile, ScoresStandWhereTheyAreNeededAsWeights) {
  for (const KvType type : kTypes) {
    std::set<int> keys;
    for (int group = 0; group < 2 * kSteps; ++group) {
      for (int column = 0; column < 8; ++column) {
        const int key = cuda::key_of_score(type, group, column);
        keys.insert(key);
        EXPECT_EQ(key,
                  cuda::value_of_lane(type, group / 2, column / 2, group % 2 * 2 + column % 2));
      }
    }
    EXPECT_EQ(keys.size(), 16U * kSteps) << name_of(type);
    EXPECT_EQ(*keys.rbegin(), 16 * kSteps - 1);
  }
}

// The most lanes of a warp that read different words of one bank.
int conflicts(KvType type, int stride, bool of_scores) {
  int most = 0;
  for (int group = 0; group < 8; ++group) {
    std::map<int, std::set<int>> words_of_bank;
    for (int g = 0; g < 8; ++g) {
      for (int t = 0; t < 4; ++t) {
        const int column = of_scores ? cuda::key_of_score(type, group, g) : 8 * group + g;
        const int word = cuda::word_row_of_lane(type, 0, t) * stride + column;
        words_of_bank[word % 32].insert(word);
      }
    }
    for (const auto& [bank, words] : words_of_bank) {
      most = std::max(most, static_cast<int>(words.size()));
    }
  }
  return most;
}

TEST(AttentionTile, SharedMemoryIsReadWithoutConflicts) {
  for (const KvType type : kTypes) {
    for (const int keys : {32, 64, 128}) {
      EXPECT_LE(conflicts(type, keys + cuda::padding_of_k(type), true),
                type == KvType::kBf16 ? 1 : 2)
          << name_of(type) << " " << keys;
    }
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      EXPECT_EQ(conflicts(type, head_dim + cuda::kPaddingOfV, false), 1)
          << name_of(type) << " " << head_dim;
    }
  }
}

TEST(AttentionTile, CodesLieInWordsAsWrittenDown) {
  EXPECT_EQ(cuda::lane_bits(1, 0x89abcdefU, 0), 0x89abcdefU);
  EXPECT_EQ(cuda::lane_bits(2, 0x89abcdefU, 1), 0x89abU);
  EXPECT_EQ(cuda::lane_bits(4, 0x89abcdefU, 0), 0xefU);
  EXPECT_EQ(cuda::lane_bits(4, 0x89abcdefU, 3), 0x89U);
  // Values 0 to 3 in the lower halves of bytes 0 to 3, values 4 to 7 in the upper ones.
  constexpr std::uint32_t kWant[] = {0xf, 0xd, 0xb, 0x9, 0xe, 0xc, 0xa, 0x8};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(cuda::lane_bits(8, 0x89abcdefU, i), kWant[i]);
  // Values 0 to 3 in the lowest quarters of the bytes, 4 to 7 in the next.
  constexpr std::uint32_t kQuarters[] = {3, 1, 3, 1, 3, 3, 2, 2, 2, 0, 2, 0, 3, 3, 2, 2};
  for (int i = 0; i < 16; ++i) EXPECT_EQ(cuda::lane_bits(16, 0x89abcdefU, i), kQuarters[i]);
  for (const KvType type : kAllKvTypes) EXPECT_EQ(cuda::lanes_of(type), kv_lanes(type));
}

}  // namespace
}  // namespace longhaul::test
