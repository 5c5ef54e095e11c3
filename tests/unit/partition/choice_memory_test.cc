// What methods take beside blocks, by hand: 32 layers of 8 KV heads of 128 dimensions, 4 query
// heads each, a million tokens, on one CPU.
#include "partition/choice_memory.h"

#include <gtest/gtest.h>

#include "partition/check_plan.h"
#include "partition/memory_model.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::kGiB;
using test::million_tokens;
using test::plan_of;

struct OneCpu {
  explicit OneCpu(std::int64_t n_sequences, std::int64_t tail_tokens)
      : request(million_tokens(equal_cluster(1, 900 * kGiB))) {
    request.workload.n_sequences = n_sequences;
    request.workload.tail_tokens = tail_tokens;
    request.workload.chunk_len = 8192;
  }
  RankBytes bytes(const HeadPolicy& policy) {
    request.heads = HeadTable(request.spec.n_layers, request.spec.n_kv_heads, policy);
    return memory_of(plan_of(request), request.spec, request.cluster, request.workload)[Rank{0}];
  }
  PlanRequest request;
};

// Of the document and 3 forks, each of 256 heads: 128 doubles of keys and as many of values.
TEST(ChoiceMemory, RazorSumsWhatIsGone) {
  OneCpu cpu(3, 64);
  const RankBytes streaming = cpu.bytes({.see = SeeSinkRecent{4, 512}});
  const RankBytes razor = cpu.bytes({.see = SeeSinkRecent{4, 512}, .rest = Rest::kCompensationKey});
  EXPECT_EQ(razor.kv_streaming - streaming.kv_streaming, 256LL * (1 + 3) * 2 * 128 * 8);
  EXPECT_EQ(razor.activations, streaming.activations);
  EXPECT_EQ(razor.kv_retrieval, 0);
}

// A head has 16,384 blocks of the document and 3 of each fork's tail; a block has 4 pages of 16
// tokens. A tile of 16 pages has 128 smallest and largest floats of each, 16,384 bytes, and 128
// beside: a quarter of that for a block. The lists of the document and of 2 forks: 32 bytes a page,
// 24 a tile (of 4 pages 6), 16 a block. A fork may take two tiles more, the document one.
TEST(ChoiceMemory, QuestHasBoundsAndListsOfPages) {
  OneCpu cpu(2, 129);
  const HeadPolicy quest = {.choose = ReadTopPages{.page_tokens = 16, .budget_tokens = 4096}};
  const RankBytes dense = cpu.bytes({});
  const RankBytes paged = cpu.bytes(quest);
  const std::int64_t of_block = (16'384 + 128) / 4 + 3 * (4 * 32 + 6 + 16);
  EXPECT_EQ(paged.kv_retrieval - dense.kv_retrieval,
            256 * ((16'384 + 2 * 3) * of_block + 5 * (16'384 + 128)));
  // While a layer chooses, each of 32 query heads of 2 requests: bounds of 65,552 pages (those of
  // 1,048,705 tokens in whole tiles), 512 bytes, and of 256 pages 136 bytes and 24 twice. While
  // pages of a head are found, 240 bytes each.
  EXPECT_EQ(paged.activations - dense.activations,
            2 * 32 * (65'552LL * 4 + 512 + 256 * (136 + 2 * 24)) + 65'552LL * 240);
}

// 32 queries of 4 query heads score 1,048,640 tokens for one head at a time, in floats, beside what
// each token got and its place (24 bytes). Until all 8 heads have chosen, each has for each token 4
// floats, its number, its score and what is chosen. The document and a fork keep 32 queries of 32
// heads in each of 32 layers, with their positions.
TEST(ChoiceMemory, SnapKvHasScoresOfOneHeadAndWhatAllGot) {
  OneCpu cpu(1, 64);
  KeepBudget keep{.n_tokens = 2048, .n_recent = 32, .when = KeepWhen::kAfterDocument};
  keep.observe = ObserveLast{32};
  const RankBytes dense = cpu.bytes({});
  const RankBytes snap = cpu.bytes({.keep = keep});
  const std::int64_t observed = 32 * 2 * 32 * (32 * 128 * 4 + 8);
  EXPECT_EQ(snap.activations - dense.activations,
            1'048'640LL * ((32 + 1) * 4 * 4 + 24 + 8 * (4 * 4 + 8 + 16)) + observed);
  // The 2,048 tokens are gathered in 32 blocks, beside a list of their positions.
  EXPECT_EQ(snap.kv_retrieval - dense.kv_retrieval, 256 * 32LL * (64 * 512 + 64 * 8));
  // Heads that share a budget have candidates of all of them; query heads that choose by themselves
  // a score and what is chosen each.
  keep.select = SelectAmong::kLayerShared;
  EXPECT_EQ(cpu.bytes({.keep = keep}).activations - snap.activations, 1'048'640LL * 8 * 48);
  keep.select = SelectAmong::kHead;
  keep.group = GroupScore::kEach;
  keep.n_choosers = 4;
  EXPECT_EQ(cpu.bytes({.keep = keep}).activations - snap.activations, 1'048'640LL * 8 * 3 * 16);
}

// A chunk's 8,192 queries; 8 of them at a time are scored with all tokens by 32 query heads, which
// is more than 2^24 scores; sums of up to 256 queries' exponentials, 16 bytes, 6 times; positions.
TEST(ChoiceMemory, H2oAndFastGenHaveScoresOfAllHeads) {
  OneCpu cpu(1, 64);
  KeepBudget keep{.n_tokens = 2048, .n_recent = 32, .when = KeepWhen::kAfterToken};
  keep.observe = ObserveAll{};
  const RankBytes dense = cpu.bytes({});
  const std::int64_t scored =
      8192LL * (32 * 128 * 4 + 8) + 32 * (8 * 1'048'640LL * 4 + 256 * 6 * 16) + 1'048'640LL * 8;
  EXPECT_EQ(cpu.bytes({.keep = keep}).activations - dense.activations, scored);
  // The kind of each token of the document and of a fork, with room to grow.
  keep = {.share = 1, .when = KeepWhen::kAfterToken};
  keep.observe = ObserveAll{};
  keep.recover = Recover{};
  EXPECT_EQ(cpu.bytes({.keep = keep}).activations - dense.activations,
            scored + 2 * 2 * 1'048'640LL);
}

// Queries come from all ranks and go to all; so do candidates among pages.
TEST(ChoiceMemory, RingsHaveCopiesOfWhatTravels) {
  const OneCpu cpu(1, 64);
  const ModelSpec& spec = cpu.request.spec;
  KeepBudget keep{.n_tokens = 2048, .n_recent = 32, .when = KeepWhen::kAfterToken};
  keep.observe = ObserveAll{};
  const auto more = [&](const HeadPolicy& policy) {
    const HeadTable heads(spec.n_layers, spec.n_kv_heads, policy);
    const HeadNeeds needs(heads, spec, cpu.request.cluster, cpu.request.workload);
    return choice_bytes(needs.choice, spec, cpu.request.workload, 3) -
           choice_bytes(needs.choice, spec, cpu.request.workload, 1);
  };
  EXPECT_EQ(more({.keep = keep}), 2 * 8192LL * (32 * 128 * 4 + 8) + 32 * 256 * 2 * 16);
  EXPECT_EQ(more({.choose = ReadTopPages{16, 4096}}), 32 * 256LL * 6 * 24);
  EXPECT_EQ(more({}), 0);
}

// A plan that keeps to each rank's memory, or a refusal; never a plan that is wrong.
TEST(ChoiceMemory, HasRoomWhereHeadsArePlaced) {
  KeepBudget keep{.n_tokens = 200'000, .when = KeepWhen::kAfterPrompt};
  const HeadPolicy snap = {.keep = keep};
  keep.observe = ObserveAll{};
  const HeadPolicy all = {.keep = keep};
  const HeadPolicy quest = {.choose = ReadTopPages{16, 4096}};
  const HeadPolicy razor = {.see = SeeSinkRecent{4, 4096}, .rest = Rest::kCompensationKey};
  for (const std::int64_t n_ranks : {1, 3}) {
    for (const HeadPolicy& policy : {snap, all, quest, razor}) {
      int n_plans = 0;
      int n_refusals = 0;
      for (std::int64_t gib = 8; gib < 800; gib += gib / 4) {
        PlanRequest request = million_tokens(equal_cluster(n_ranks, gib * kGiB / n_ranks));
        request.workload.n_sequences = 3;
        request.heads = HeadTable(request.spec.n_layers, request.spec.n_kv_heads, policy);
        const PlanResult result = make_plan(request);
        if (const Plan* plan = std::get_if<Plan>(&result)) {
          ++n_plans;
          EXPECT_TRUE(check_plan(*plan, request.spec, request.cluster, request.workload).empty())
              << gib << " GiB on " << n_ranks;
        } else {
          ++n_refusals;
        }
      }
      EXPECT_GT(n_plans, 3);
      EXPECT_GT(n_refusals, 0);
    }
  }
}

}  // namespace
}  // namespace longhaul
