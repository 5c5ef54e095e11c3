// Bytes by hand: the published sizes of Llama-3-8B, windows, weights.
#include "partition/memory_model.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "partition/make_plan.h"
#include "partition/scratch_memory.h"
#include "partition/transfer_memory.h"
#include "partition/weight_bytes.h"
#include "tests/unit/partition/models.h"

namespace longhaul {
namespace {

using test::first_heads;
using test::kGiB;
using test::llama3_8b;
using test::million_tokens;
using test::plan_of;

TEST(KvFormat, TokenBytes) {
  const KvFormat bf16{KvType::kBf16, KvType::kBf16, 64, 128};
  EXPECT_EQ(bf16.token_bytes(), 512);
  EXPECT_EQ(bf16.token_bytes() * 32 * 8, 131072);  // a token of Llama-3-8B
  EXPECT_EQ(kv_token_bytes(KvType::kF32, 128), 512);
  EXPECT_EQ(kv_token_bytes(KvType::kInt8, 128), 132);
  EXPECT_EQ(kv_token_bytes(KvType::kFp8, 128), 130);
  // DuoAttention's demo: 64 B + 4 B for K and as much for V.
  EXPECT_EQ((KvFormat{KvType::kInt4, KvType::kInt4, 64, 128}.token_bytes()), 136);
}

// 32 values have 4 bytes of scale and minimum.
TEST(KvFormat, TypesThatQuantiseGroupsHaveOpenBlocks) {
  EXPECT_EQ(kv_token_bytes(KvType::kKivi4, 128), 64 + 16);
  EXPECT_EQ(kv_token_bytes(KvType::kKivi2, 128), 32 + 16);
  const KvFormat kivi{KvType::kKivi2, KvType::kInt4, 64, 128};
  EXPECT_EQ(kivi.token_bytes(), 48 + 68);
  EXPECT_EQ(kivi.open_block_bytes(), 2 * 64 * 128 * 4);
  EXPECT_EQ((KvFormat{KvType::kInt4, KvType::kInt4, 64, 128}.open_block_bytes()), 0);
}

// The document and its forks have an open block each, on any rank that is a home.
TEST(MemoryModel, OpenBlocksAreCounted) {
  PlanRequest request = million_tokens(equal_cluster(1, 200 * kGiB));
  std::int64_t n_homes = 0;
  const auto total = [&] {
    const Plan plan = std::get<Plan>(make_plan(request));
    n_homes = 0;
    for (const Stage& stage : plan.replicas.front().stages) {
      for (const auto& heads : stage.home) {
        for (const Home& home : heads) n_homes += std::ssize(home.shares);
      }
    }
    std::int64_t sum = 0;
    for (const RankBytes& bytes : memory_of(plan, request.spec, request.cluster, request.workload))
      sum += bytes.kv_retrieval + bytes.kv_streaming;
    return sum;
  };
  request.workload.k_type = KvType::kInt4;
  request.workload.v_type = KvType::kInt4;
  const std::int64_t int4 = total();
  request.workload.k_type = KvType::kKivi4;
  request.workload.v_type = KvType::kKivi4;
  const std::int64_t open = (1 + request.workload.n_sequences) * 2 * 64 * 128 * 4;
  EXPECT_EQ((total() - 256 * open) * 68, int4 * 80);
  EXPECT_EQ(n_homes, 256);
  request.cluster = equal_cluster(2, 100 * kGiB);
  request.options.n_replicas = 1;
  request.options.n_stages = 1;
  const std::int64_t kivi4 = total() - n_homes * open;
  request.workload.k_type = KvType::kInt4;
  request.workload.v_type = KvType::kInt4;
  EXPECT_EQ(kivi4 * 68, total() * 80);
}

// On GPUs, where attention to them is described apart: a piece for each block's queries and four
// rows' tile.
TEST(MemoryModel, OpenBlocksTakeDescriptionsOnGpus) {
  const PlanRequest request = million_tokens(equal_cluster(1, 200 * kGiB));
  Workload workload = request.workload;
  workload.document_tokens = 1'000;
  workload.chunk_len = 65'536;
  const auto bytes = [&](KvType type, Device device) {
    workload.k_type = workload.v_type = type;
    return scratch_bytes({.host = {}, .device = device}, request.spec, dense_heads(request.spec),
                         workload);
  };
  EXPECT_EQ(bytes(KvType::kKivi4, Device::kCpu), 0);
  EXPECT_EQ(bytes(KvType::kKivi4, Device::kCuda), bytes(KvType::kKivi2, Device::kCuda));
  const std::int64_t more =
      bytes(KvType::kKivi4, Device::kCuda) - bytes(KvType::kInt4, Device::kCuda);
  EXPECT_GT(more, 65'536 * request.spec.n_kv_heads * (8 + 56));
  EXPECT_LT(more, std::int64_t{1} << 30);
}

// A plan or a refusal with what would fit, never a plan that is wrong.
TEST(MemoryModel, OpenBlocksHaveRoomWhereHeadsArePlaced) {
  int n_plans = 0;
  for (std::int64_t mib = 18 * 1024; mib < 42 * 1024; mib += 251) {
    PlanRequest request = million_tokens(equal_cluster(1, mib << 20));
    request.workload.k_type = KvType::kKivi4;
    request.workload.v_type = KvType::kKivi2;
    request.workload.n_sequences = 16;
    PlanResult result;
    ASSERT_NO_THROW(result = make_plan(request)) << mib << " MiB";
    n_plans += std::holds_alternative<Plan>(result) ? 1 : 0;
  }
  EXPECT_GT(n_plans, 3);
  EXPECT_LT(n_plans, 90);
}

// Requests that choose for themselves gather beside each other. Together that may be more than the
// document, which plans once took for the most. A block takes 32 KiB, and a list of 64 positions.
TEST(MemoryModel, EveryRequestGathersWhatItChooses) {
  PlanRequest request = million_tokens(equal_cluster(1, 900 * kGiB));
  request.workload.tail_tokens = 64;
  request.workload.n_sequences = 3;
  const auto kv_bytes = [&](const HeadPolicy& policy) {
    request.heads = HeadTable(request.spec.n_layers, request.spec.n_kv_heads, policy);
    return memory_of(plan_of(request), request.spec, request.cluster, request.workload)[Rank{0}]
        .kv_retrieval;
  };
  const std::int64_t dense = kv_bytes({});
  const std::int64_t gathered = 256LL * 10'000 * (64 * 512 + 64 * 8);
  KeepBudget keep{.n_tokens = 640'000, .when = KeepWhen::kAfterDocument};
  EXPECT_EQ(kv_bytes({.keep = keep}), dense + gathered);
  keep.when = KeepWhen::kAfterPrompt;
  EXPECT_EQ(kv_bytes({.keep = keep}), dense + 3 * gathered);
}

// A double of each token of a head, with room for an eighth more; forks that go on summing up have
// copies, and heads that look for a recipe sum up local attention too.
TEST(MemoryModel, SumsOfAttentionAreCounted) {
  PlanRequest request = million_tokens(equal_cluster(1, 400 * kGiB));
  request.workload.tail_tokens = 0;
  request.workload.n_sequences = 3;
  const auto kv_bytes = [&](const KeepBudget& keep) {
    request.heads = HeadTable(request.spec.n_layers, request.spec.n_kv_heads, {.keep = keep});
    return memory_of(plan_of(request), request.spec, request.cluster, request.workload)[Rank{0}]
        .kv_retrieval;
  };
  const std::int64_t sums = 256 * request.workload.document_blocks() * (64 + 8) * 8;
  KeepBudget keep{.share = 1, .when = KeepWhen::kAfterDocument};
  const std::int64_t without = kv_bytes(keep);
  keep.observe = ObserveAll{};
  EXPECT_EQ(kv_bytes(keep), without + sums);
  keep.recover = Recover{};
  EXPECT_EQ(kv_bytes(keep), without + 2 * sums);
  keep = {.n_tokens = 100, .when = KeepWhen::kAfterToken};
  const std::int64_t every_token = kv_bytes(keep);
  keep.observe = ObserveAll{};
  EXPECT_EQ(kv_bytes(keep), every_token + 4 * sums);
}

TEST(WeightBytes, Llama3OfEightBillion) {
  const ModelSpec spec = llama3_8b();
  // 218,112,000 parameters a layer, 525,336,576 in each of embedding and head; norms in f32.
  EXPECT_EQ(layer_weight_bytes(spec, DType::kBf16), 2 * 218103808LL + 4 * 8192);
  EXPECT_EQ(embedding_bytes(spec, DType::kBf16), 2 * 525336576LL);
  EXPECT_EQ(stage_weight_bytes(spec, DType::kBf16, {0, 32}),
            32 * layer_weight_bytes(spec, DType::kBf16) + 4 * 525336576LL + 4 * 4096);
  EXPECT_EQ(stage_weight_bytes(spec, DType::kBf16, {8, 16}),
            8 * layer_weight_bytes(spec, DType::kBf16));
  ModelSpec tied = spec;
  tied.tied_embeddings = true;
  EXPECT_EQ(stage_weight_bytes(tied, DType::kBf16, {0, 32}),
            32 * layer_weight_bytes(spec, DType::kBf16) + 2 * 525336576LL + 4 * 4096);
  // int8: whole panels of 16 outputs and whole steps of 4 inputs, and a scale for each output.
  EXPECT_EQ(matrix_bytes(10, 99, DType::kI8), 16 * 100 + 16 * 4);
  EXPECT_EQ(layer_weight_bytes(spec, DType::kI8),
            218103808LL + 4 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096) + 4 * 8192);
  EXPECT_EQ(embedding_bytes(spec, DType::kI8), 2 * 525336576LL);
  EXPECT_EQ(stage_weight_bytes(spec, DType::kI8, {0, 32}),
            32 * layer_weight_bytes(spec, DType::kI8) + 3 * 525336576LL + 4 * 128256 + 4 * 4096);
  // int4: whole panels of 16 outputs and whole groups of 32 inputs of 16 bytes, each with a scale.
  EXPECT_EQ(matrix_bytes(10, 99, DType::kI4), 16 * 4 * (16 + 2));
  EXPECT_EQ(layer_weight_bytes(spec, DType::kI4), 218103808LL / 32 * 18 + 4 * 8192);
  EXPECT_EQ(stage_weight_bytes(spec, DType::kI4, {0, 32}),
            32 * layer_weight_bytes(spec, DType::kI4) + 2 * 525336576LL + 525336576LL / 32 * 18 +
                4 * 4096);
  // fp8: a byte each, and a scale for each 128 x 128; embedding and output head of bf16.
  EXPECT_EQ(matrix_bytes(300, 200, DType::kF8E4m3), 300 * 200 + 3 * 2 * 4);
  EXPECT_EQ(layer_weight_bytes(spec, DType::kF8E4m3),
            218103808LL + 218103808LL / (128 * 128) * 4 + 4 * 8192);
  EXPECT_EQ(stage_weight_bytes(spec, DType::kF8E4m3, {0, 32}),
            32 * layer_weight_bytes(spec, DType::kF8E4m3) + 4 * 525336576LL + 4 * 4096);
}

TEST(MemoryModel, AMillionTokensOfHalfTheHeadsAre64GiB) {
  PlanRequest request = million_tokens(equal_cluster(1, 200 * kGiB));
  request.workload.tail_tokens = 0;
  const auto bytes = memory_of(plan_of(request), request.spec, request.cluster, request.workload);
  EXPECT_EQ(bytes[Rank{0}].kv_retrieval, 64 * kGiB);
  // 128 heads; of each 2 sink blocks, and 5 blocks that 256 tokens can touch; no forks' own tokens.
  EXPECT_EQ(bytes[Rank{0}].kv_streaming, 128LL * 7 * 64 * 512);
  EXPECT_EQ(bytes[Rank{0}].ring_buffers, 0);
  EXPECT_EQ(bytes[Rank{0}].weights, stage_weight_bytes(request.spec, DType::kBf16, {0, 32}));
  EXPECT_EQ(bytes[Rank{0}].headroom, 10 * kGiB);
}

TEST(MemoryModel, DenseIs128GiBAndForksAddTheirTails) {
  PlanRequest request = million_tokens(equal_cluster(1, 400 * kGiB));
  request.heads = dense_heads(request.spec);
  request.workload.tail_tokens = 129;  // touches at most 3 blocks
  request.workload.n_sequences = 2;
  const auto bytes = memory_of(plan_of(request), request.spec, request.cluster, request.workload);
  EXPECT_EQ(bytes[Rank{0}].kv_retrieval, 128 * kGiB + 2LL * 3 * 64 * 131072);
  EXPECT_EQ(bytes[Rank{0}].kv_streaming, 0);
}

Workload million_tokens_and_one_answer() {
  Workload workload = million_tokens(equal_cluster(1, 200 * kGiB)).workload;
  workload.n_sequences = 1;
  workload.tail_tokens = 64;
  return workload;
}

TEST(MemoryModel, GpusNeedScratchMemory) {
  const ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  Workload workload = million_tokens_and_one_answer();
  EXPECT_EQ(scratch_bytes({}, spec, dense_heads(spec), workload), 0);
  // 512 MiB of converted keys, 2 x 1,024 ranges of 128 rows of 130 floats, a quarter
  // more; descriptions of 16,384 + 2 blocks of 8 heads, half as much more, four times; 64 MiB of
  // those of a decode step; tables of 8 bytes for a block, four times, of 32 layers of 8 heads, and
  // for 64 blocks of the sequence's own; cuBLAS.
  EXPECT_EQ(scratch_bytes(gpu, spec, dense_heads(spec), workload),
            (536'870'912LL + 2 * 1024 * 128 * 130 * 4) / 4 * 5 + 4 * (16'386LL * 8 * 32 / 2 * 3) +
                67'108'864 + 32LL * 8 * (4 * 16'384LL + 64) * 8 + 33'554'432);
  // Partial states of many sequences: of 128 ranges, 16 rows, 8 heads each.
  workload.n_sequences = 100;
  EXPECT_GT(scratch_bytes(gpu, spec, dense_heads(spec), workload),
            100LL * 8 * 128 * 16 * 130 * 4 / 4 * 5);
}

// As many descriptions as on the GPU: four pieces of a million tokens' 16,386 blocks, and 64 MiB of
// a step's; and results.
TEST(MemoryModel, GpusNeedPinnedMemoryOfTheirHosts) {
  const ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  const Workload workload = million_tokens_and_one_answer();
  EXPECT_EQ(pinned_bytes({}, spec, dense_heads(spec), workload), 0);
  EXPECT_EQ(pinned_bytes(gpu, spec, dense_heads(spec), workload),
            4 * (16'386LL * 8 * 32 / 2 * 3) + (64 << 20) + (1 << 20) / 4 * 5);
}

// An arena is what weights, headroom and NCCL leave of a GPU's memory.
TEST(MemoryModel, ArenasTakeWhatIsLeft) {
  PlanRequest request = million_tokens(equal_cluster(4, 200 * kGiB));
  for (RankSpec& rank : request.cluster.ranks) rank.device = Device::kCuda;
  request.options.n_stages = 1;
  request.options.n_replicas = 1;
  const Plan plan = std::get<Plan>(make_plan(request));
  request.workload.chunk_len = plan.chunk_len;
  const std::vector<std::vector<Rank>> rings = {plan.replicas[0].stages[0].ring.values()};
  const std::int64_t transfers = transfer_bytes(request.cluster, rings).front();
  EXPECT_GT(transfers, 0);
  const auto bytes = memory_of(plan, request.spec, request.cluster, request.workload);
  for (const Rank rank : bytes.ids()) {
    const RankBytes& of_rank = bytes[rank];
    EXPECT_EQ(of_rank.transfers, transfers);
    EXPECT_EQ(arena_bytes(of_rank, request.cluster.rank(rank)) + of_rank.weights +
                  of_rank.headroom + transfers,
              of_rank.limit);
    EXPECT_EQ(arena_bytes(of_rank, {.host = {}, .device = Device::kCpu}), 0);
  }
}

// Four query heads choose 2,100 tokens each of which the last 20 are the same: 8,340 in blocks of
// 64, 8 bytes for each in a piece of a power of two; once for the document, or for each question.
TEST(MemoryModel, GpusNeedMemoryForWhichHeadsSeeTokens) {
  const ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  Workload workload = million_tokens(equal_cluster(1, 200 * kGiB)).workload;
  workload.n_sequences = 3;
  workload.tail_tokens = 64;
  for (const KeepWhen when : {KeepWhen::kAfterDocument, KeepWhen::kAfterPrompt}) {
    HeadTable alike = dense_heads(spec);
    HeadTable apart = dense_heads(spec);
    KeepBudget keep{.n_tokens = 2100, .n_recent = 20, .when = when, .observe = ObserveLast{20}};
    alike.set(LayerId{3}, KvHeadId{1}, {.keep = keep});
    keep.group = GroupScore::kEach;
    keep.n_choosers = 4;
    apart.set(LayerId{3}, KvHeadId{1}, {.keep = keep});
    EXPECT_EQ(scratch_bytes(gpu, spec, apart, workload) - scratch_bytes(gpu, spec, alike, workload),
              (when == KeepWhen::kAfterDocument ? 1 : 3) * 16'384 * 8);
  }
}

// Of tokens that merge, 8 heads with 257 floats each: of the document and one question of it 22 in
// each of 32 layers, in pieces of 256 KiB, and a piece more for each while a layer's are moved.
// Descriptions of a long chunk: 4 bytes and two copies of 48 for each token and head. Scratch for
// attention is enough.
TEST(MemoryModel, GpusNeedMemoryForTokensThatMerge) {
  ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  Workload workload = million_tokens_and_one_answer();
  workload.chunk_len = 65'536;
  const std::int64_t before = scratch_bytes(gpu, spec, dense_heads(spec), workload);
  spec.token_merging = TokenMerging{.window = 12, .init_val = 5};
  const std::int64_t description = 8LL * 65'536 * (4 + 2 * 48);
  EXPECT_EQ(scratch_bytes(gpu, spec, dense_heads(spec), workload) - before,
            4 * (description / 2 * 3 - 16'386LL * 8 * 32 / 2 * 3) +
                2 * (32 * (262'144LL - 22 * 8 * 257 * 4) + 262'144));
}

// Descriptions are larger: 256 queries of 4 heads, a tile of keys for each block, and what each of
// a million tokens has so far. Scratch for attention is enough.
TEST(MemoryModel, GpusNeedMemoryForWhatKeysGetOfAttention) {
  const ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  Workload workload = million_tokens_and_one_answer();
  HeadTable heads = dense_heads(spec);
  KeepBudget keep{.n_tokens = 2048};
  keep.observe = ObserveAll{};
  heads.set(LayerId{3}, KvHeadId{1}, {.keep = keep});
  const std::int64_t description =
      1024LL * (128 * 4 + 12) + 256 * 16 + 16'385LL * 40 + 1'048'640LL * 8;
  const std::int64_t before = 16'386LL * 8 * 32;
  EXPECT_EQ(scratch_bytes(gpu, spec, heads, workload) -
                scratch_bytes(gpu, spec, dense_heads(spec), workload),
            4 * (description / 2 * 3 - before / 2 * 3));
}

// 32 query heads choose 256 pages of 16 tokens among 1,048,640 tokens: each an item of attention of
// 136 bytes, a position, a split of 24, 33 ranges of its pages' blocks, each a task of 40 bytes and
// a member of 16, and 256 blocks of 32. For each of 8 KV heads 48 bytes and 8 for each tile of 16
// of 65,540 pages and 16 more; while the prompt is read 48 bytes for each of these pages.
TEST(MemoryModel, GpusNeedMemoryForPagesThatQueriesChoose) {
  const ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  Workload workload = million_tokens_and_one_answer();
  HeadTable heads = dense_heads(spec);
  heads.set(LayerId{3}, KvHeadId{1},
            {.choose = ReadTopPages{.page_tokens = 16, .budget_tokens = 4096}});
  const std::int64_t description =
      32LL * (136 + 8 + 24 + 33 * (40 + 16) + 256 * 32) + 8 * (48 + 4098LL * 8) + 65'556LL * 48;
  EXPECT_EQ(scratch_bytes(gpu, spec, heads, workload) -
                scratch_bytes(gpu, spec, dense_heads(spec), workload),
            4 * (description / 2 * 3));
}

// A key that stands for what is gone, of 8 heads: for the document's sequence and one that answers
// 160 bytes, sums of 2 x 128 doubles, a position and two blocks; for a chunk positions, and the
// blocks of its length and one more.
TEST(MemoryModel, GpusNeedMemoryForWhatLeavesWindows) {
  const ModelSpec spec = llama3_8b();
  const RankSpec gpu{.host = {}, .device = Device::kCuda};
  Workload workload = million_tokens(equal_cluster(1, 200 * kGiB)).workload;
  workload.document_tokens = 64;  // of which dense heads have short descriptions
  workload.n_sequences = 1;
  workload.tail_tokens = 64;
  workload.chunk_len = 65'536;
  const HeadTable streaming(spec.n_layers, spec.n_kv_heads, {.see = SeeSinkRecent{4, 32}});
  const HeadTable razor(spec.n_layers, spec.n_kv_heads,
                        {.see = SeeSinkRecent{4, 32}, .rest = Rest::kCompensationKey});
  const std::int64_t description =
      8LL * (2 * (160 + 2 * 128 * 8 + 8 + 2 * 32) + 65'536 * 8 + 1025 * 32);
  const std::int64_t at_least = 1 << 20;  // of a stage
  EXPECT_EQ(
      scratch_bytes(gpu, spec, razor, workload) - scratch_bytes(gpu, spec, streaming, workload),
      4 * (description / 2 * 3 - at_least));
}

TEST(MemoryModel, RanksWithoutAPartHoldNothing) {
  PlanRequest request = million_tokens(equal_cluster(2, 200 * kGiB));
  Plan plan = plan_of(request);
  plan.replicas.clear();
  const auto bytes = memory_of(plan, request.spec, request.cluster, request.workload);
  EXPECT_EQ(bytes[Rank{1}].total(), bytes[Rank{1}].headroom);
}

}  // namespace
}  // namespace longhaul
