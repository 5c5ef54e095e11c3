// Decode steps as CUDA graphs: bit for bit the answers of steps whose work is queued piece by
// piece, while sequences come and go, blocks are given up, memory moves and steps fail; and most
// steps are replays.
#include "model/model_folder.h"
#include "tests/golden/golden_models.h"
#include "tests/gpu/wide_model.h"
#include "tests/gpu/worker_plays.h"
#include "worker/kv/block_pool.h"

namespace longhaul::test {
namespace {

constexpr SamplingParams kGreedy{.n_logprobs = 5};

void expect_equal(const PickedToken& got, const PickedToken& want) {
  EXPECT_EQ(got.sequence, want.sequence);
  EXPECT_EQ(got.token, want.token);
  EXPECT_EQ(got.logprob, want.logprob);
  ASSERT_EQ(got.top.size(), want.top.size());
  for (std::size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_EQ(got.top[i].token, want.top[i].token);
    EXPECT_EQ(got.top[i].logprob, want.top[i].logprob);
  }
}

// The steps of the play that went as graphs.
std::int64_t expect_equal_answers(const MakeConfig& make, const Play& play) {
  WorkerConfig config = make(kGpu);
  Player with(config);
  play(with);
  config.decode_graphs = false;
  Player without(config);
  play(without);
  EXPECT_EQ(without.worker().n_graph_steps(), 0);
  EXPECT_EQ(with.seen().kv_bytes, without.seen().kv_bytes);
  const auto& got = with.seen().picked;
  const auto& want = without.seen().picked;
  EXPECT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) expect_equal(got[i], want[i]);
  return with.worker().n_graph_steps();
}

class GoldenModelGraphs : public OnGpu, public testing::WithParamInterface<std::string> {};

TEST_P(GoldenModelGraphs, GiveTheSameBits) {
  const GoldenModel golden = read_golden_model(GetParam());
  const ModelFolder folder(golden.folder);
  const auto make = [&](const DeviceId& device) -> WorkerConfig {
    return {.weights = std::make_shared<const Weights>(Weights::load(folder, std::nullopt, device)),
            .device = device,
            .heads = duo_attention_heads(folder.config().spec, mixed_roles(folder.config().spec)),
            .block_size = 16,
            .n_threads = 1};
  };
  const auto play = [&](Player& player) {
    player.open(kA, kGreedy);
    const std::int32_t first = player.prefill(kA, std::span(golden.tokens).first(70), 33);
    player.decode({kA}, {first}, 8);
  };
  EXPECT_GE(expect_equal_answers(make, play), 6);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModelGraphs, testing::ValuesIn(golden_model_names()),
                         [](const auto& test) { return test.param; });

class DecodeGraphs : public OnGpu {};

// Blocks begin, and streaming heads give theirs up, without a new graph.
TEST_F(DecodeGraphs, LastForManySteps) {
  for (const KvType type : {KvType::kF32, KvType::kInt8}) {
    const auto play = [](Player& player) {
      Random random(1);
      player.open(kA, kGreedy);
      player.prefill(kA, random_tokens(random, 90, 97), 37);
      player.feed({kA}, random, 70);
    };
    EXPECT_GE(expect_equal_answers(wide_model(type), play), 60) << name_of(type);
  }
}

// A step that closes blocks goes one by one, and so does the one after it.
TEST_F(DecodeGraphs, LastBetweenBlocksThatAreClosed) {
  const auto play = [](Player& player) {
    Random random(1);
    player.open(kA, kGreedy);
    player.prefill(kA, random_tokens(random, 90, 97), 37);
    player.feed({kA}, random, 70);
  };
  for (const KvType type : kGroupedKvTypes)
    EXPECT_GE(expect_equal_answers(wide_model(type), play), 60) << name_of(type);
}

TEST_F(DecodeGraphs, WorkWithWeightsThatAreRounded) {
  const auto play = [](Player& player) {
    Random random(1);
    player.open(kA, kGreedy);
    player.prefill(kA, random_tokens(random, 40, 97), 37);
    player.feed({kA}, random, 8);
  };
  for (const DType type : {DType::kBf16, DType::kI8, DType::kI4}) {
    EXPECT_GE(expect_equal_answers(wide_model(KvType::kBf16, type), play), 6) << name_of(type);
  }
}

// Forks share blocks and tiles; one of them decodes at once, so that its block is copied in a step.
TEST_F(DecodeGraphs, FollowForksAndBatchesThatChange) {
  const auto play = [](Player& player) {
    Random random(2);
    player.open(kA, kGreedy);
    player.prefill(kA, random_tokens(random, 75, 97), 40);
    player.feed({kA}, random, 4);
    for (const SequenceId id : {kB, kC}) {
      player.step(ForkSequence{.parent = kA, .child = id, .sampling = kGreedy});
    }
    player.feed({kA, kB, kC}, random, 6);
    player.step(DropSequences{.sequences = {kA}});
    player.feed({kC, kB}, random, 4);
    player.feed({kB, kC}, random, 4);
    player.step(ForkSequence{.parent = kC, .child = kA, .sampling = {.n_logprobs = 3}});
    player.feed({kA, kB, kC}, random, 4);
    player.feed({kB}, random, 4);
  };
  for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kKivi4}) {
    EXPECT_GE(expect_equal_answers(wide_model(type), play), 12);
  }
}

// Chunks between decode steps make scratch and activations grow and move.
TEST_F(DecodeGraphs, AreNotReplayedOnMemoryThatMoved) {
  const auto play = [](Player& player) {
    Random random(3);
    player.open(kA, kGreedy);
    player.open(kB, kGreedy);
    player.prefill(kA, random_tokens(random, 20, 97), 8);
    player.prefill(kB, random_tokens(random, 5, 97), 8);
    for (const std::int64_t n : {16, 64, 256, 700}) {
      player.feed({kA, kB}, random, 4);
      player.prefill(kA, random_tokens(random, n, 97), 1000);
    }
    player.feed({kA, kB}, random, 4);
  };
  EXPECT_GE(expect_equal_answers(wide_model(KvType::kF32), play), 8);
}

TEST_F(DecodeGraphs, LeaveSamplingAsItIs) {
  const auto play = [](Player& player) {
    Random random(4);
    player.open(kA, {.temperature = 0.9, .top_k = 20, .top_p = 0.95, .seed = 5, .n_logprobs = 2});
    player.open(kB, {.temperature = 1.3, .seed = 6});
    const std::int32_t a = player.prefill(kA, random_tokens(random, 30, 97), 100);
    const std::int32_t b = player.prefill(kB, random_tokens(random, 20, 97), 100);
    player.decode({kA, kB}, {a, b}, 8);
  };
  EXPECT_GE(expect_equal_answers(wide_model(KvType::kF32), play), 4);
}

TEST_F(DecodeGraphs, WorkWithSinksAtPositionsInTheCache) {
  const auto make = [](const DeviceId& device) {
    WorkerConfig config = wide_model(KvType::kF32)(device);
    HeadRoles roles = mixed_roles(wide_spec());
    roles.sink_positions = SinkPositions::kInCache;
    config.heads = duo_attention_heads(wide_spec(), roles);
    return config;
  };
  const auto play = [](Player& player) {
    Random random(5);
    player.open(kA, kGreedy);
    player.prefill(kA, random_tokens(random, 60, 97), 100);
    player.feed({kA}, random, 12);
  };
  EXPECT_GE(expect_equal_answers(make, play), 8);
}

// A step that runs out of blocks in the middle of its layers does nothing, and the worker goes on.
TEST_F(DecodeGraphs, AStepThatFailsLeavesTheWorkerAsItWas) {
  const auto make = [](const DeviceId& device) {
    WorkerConfig config = wide_model(KvType::kF32)(device);
    config.cache_limit_bytes = std::size_t{176} << 10;
    return config;
  };
  int n_failed = 0;
  const auto play = [&](Player& player) {
    Random random(6);
    player.open(kA, kGreedy);
    player.prefill(kA, random_tokens(random, 20, 97), 100);
    player.open(kB, kGreedy);
    player.prefill(kB, random_tokens(random, 20, 97), 100);
    player.feed({kA}, random, 3);
    n_failed = 0;
    for (int i = 0; i < 60 && n_failed == 0; ++i) {
      const StepResult result =
          player.worker().step(DecodeBatch{{{.sequence = kB, .token = 5 + i % 7}}});
      if (const auto* failed = std::get_if<StepFailed>(&result)) {
        EXPECT_EQ(failed->code, ErrorCode::kOutOfMemory);
        ++n_failed;
      }
    }
    EXPECT_EQ(n_failed, 1);
    player.step(DropSequences{.sequences = {kB}});
    player.feed({kA}, random, 5);
  };
  EXPECT_GE(expect_equal_answers(make, play), 10);
}

// What a noted step reads is there when it runs, though its owner has let go of it.
TEST_F(DecodeGraphs, ReadBlocksBeforeTheirMemoryIsFreed) {
  const DeviceQueue queue(kGpu);
  const KvBlockShape shape{.block_size = 1 << 17, .head_dim = 64};  // 64 MiB: a slab
  BlockPool pool(shape, {}, queue.stream());
  const BlockId to = *pool.take();
  const BlockId other = *pool.take();
  const BlockId from = *pool.take();
  const std::vector<std::byte> sent(100, std::byte{7});
  copy_from_host(queue.stream(), pool.data(from), sent);
  const NotedStep noted(queue.stream());
  pool.copy(to, from);
  pool.release(other);  // this slab is kept
  pool.release(from);   // this one is not
  std::vector<std::byte> got(sent.size());
  copy_to_host(queue.stream(), got, pool.data(to));
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace longhaul::test
