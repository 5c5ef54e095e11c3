// Merging against a literal reading of the algorithm, and cuts against uncut words.
#include "model/tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tokenizer/bpe_encoder.h"
#include "model/tokenizer/merge_symbols.h"
#include "model/tokenizer/utf8.h"
#include "tests/support/random.h"

namespace longhaul::tokenization {
namespace {

using Ids = std::vector<std::int32_t>;

// The definition: join the leftmost pair of the best rule, again and again.
Ids merge_slowly(const MergeTable& merges, Ids symbols) {
  while (true) {
    Merge best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = merges.find(symbols[i], symbols[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (best.rank == Merge::kNoRank) return symbols;
    symbols[at] = best.result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

struct RandomRules {
  MergeTable merges;
  CutPairs cuts;
  std::int32_t n_symbols;
};

RandomRules random_rules(test::Random& random) {
  const auto n_symbols = static_cast<std::int32_t>(random.integer(2, 6));
  const std::int64_t n_merges = random.integer(1, 20);
  RandomRules rules{MergeTable(static_cast<std::size_t>(n_merges)), {}, n_symbols};
  Ids symbols;
  std::vector<std::size_t> lengths;
  for (std::int32_t i = 0; i < n_symbols; ++i) {
    symbols.push_back(i);
    lengths.push_back(1);
  }
  for (std::int32_t rank = 0; rank < n_merges; ++rank) {
    const auto any = [&] {
      return static_cast<std::int32_t>(
          random.integer(0, static_cast<std::int64_t>(lengths.size()) - 1));
    };
    const std::int32_t left = any();
    const std::int32_t right = any();
    if (rules.merges.find(left, right).rank != Merge::kNoRank) continue;
    rules.merges.set(left, right, {rank, static_cast<std::int32_t>(lengths.size())});
    lengths.push_back(lengths[static_cast<std::size_t>(left)] +
                      lengths[static_cast<std::size_t>(right)]);
  }
  rules.cuts = CutPairs(rules.merges, symbols, lengths);
  return rules;
}

TEST(SymbolMerger, EqualsTheDefinitionWithAndWithoutCuts) {
  test::Random random(test::base_seed());
  for (int i = 0; i < 2000 * test::intensity(); ++i) {
    const RandomRules rules = random_rules(random);
    Ids symbols(static_cast<std::size_t>(random.integer(0, random.chance(0.2) ? 300 : 40)));
    for (auto& id : symbols) id = static_cast<std::int32_t>(random.integer(0, rules.n_symbols - 1));
    const Ids want = merge_slowly(rules.merges, symbols);
    for (const bool cut : {true, false}) {
      const CutPairs none;
      SymbolMerger merger(rules.merges, cut ? rules.cuts : none);
      Ids scratch = symbols;
      Ids got;
      merger.merge(scratch, got);
      ASSERT_EQ(got, want) << "seed " << test::base_seed() << ", case " << i << ", cut " << cut;
    }
  }
}

BpeModel model(const std::string& text, bool byte_level = false) {
  const Json json = parse_json(text, "test");
  return BpeModel::from_json(JsonField(json, "test", "model"), byte_level);
}

Ids encode(const BpeModel& bpe, std::string_view word) {
  BpeEncoder encoder(bpe);
  Ids ids;
  encoder.encode(word, ids);
  Ids again;  // from the cache
  encoder.encode(word, again);
  EXPECT_EQ(again, ids);
  return ids;
}

TEST(BpeModel, ReadsMergesAsTextsAndAsPairs) {
  for (const char* merges : {R"(["a b", "ab c"])", R"([["a","b"],["ab","c"]])"}) {
    const BpeModel bpe = model(
        std::string(R"({"vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":)") + merges + "}");
    EXPECT_EQ(encode(bpe, "abcab"), (Ids{4, 3}));
  }
}

TEST(BpeModel, LeavesOutUnknownCharactersWithoutAnUnknownToken) {
  const BpeModel bpe = model(R"({"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})");
  EXPECT_EQ(encode(bpe, "axb"), (Ids{2}));  // as the library: neighbours once x is gone
}

TEST(BpeModel, WritesUnknownCharacters) {
  const std::string vocab =
      R"({"vocab":{"<unk>":0,"a":1},"merges":[],"unk_token":"<unk>","fuse_unk":)";
  EXPECT_EQ(encode(model(vocab + "true}"), "xyazx"), (Ids{0, 1, 0}));
  EXPECT_EQ(encode(model(vocab + "false}"), "xyazx"), (Ids{0, 0, 1, 0, 0}));
}

TEST(BpeModel, FallsBackToBytes) {
  const BpeModel bpe = model(R"({"vocab":{"<unk>":0,"a":1,"<0xC3>":2,"<0xA9>":3},"merges":[],
    "unk_token":"<unk>","byte_fallback":true,"fuse_unk":true})");
  EXPECT_EQ(encode(bpe, "aéa"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(encode(bpe, "ax"), (Ids{1, 0}));
}

TEST(BpeModel, IgnoresMergesForWholeWords) {
  const std::string text =
      R"({"vocab":{"a":0,"b":1,"ab":2,"aba":3},"merges":["a b"],"ignore_merges":)";
  EXPECT_EQ(encode(model(text + "true}"), "aba"), (Ids{3}));
  EXPECT_EQ(encode(model(text + "false}"), "aba"), (Ids{2, 0}));
}

TEST(BpeModel, CutsNowhereInsideAToken) {
  const BpeModel bpe =
      model(R"({"vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":["a b","ab c"]})");
  EXPECT_FALSE(bpe.can_cut("ab", 1));
  EXPECT_FALSE(bpe.can_cut("bc", 1));
  EXPECT_TRUE(bpe.can_cut("ba", 1));
  EXPECT_TRUE(bpe.can_cut("ac", 1));
  EXPECT_FALSE(bpe.can_cut("xa", 1));  // x is left out: its neighbours may meet
}

}  // namespace
}  // namespace longhaul::tokenization
