// A worker on a GPU: the golden models' greedy tokens, every type of cache, streaming heads, forks,
// sampling and scores are the CPU's; what cannot be done is refused by name.
#include <gmock/gmock.h>

#include "base/clock.h"
#include "base/device/gpu_memory.h"
#include "kernels/cuda/hopper_attention.h"
#include "model/model_folder.h"
#include "partition/scratch_memory.h"
#include "tests/golden/golden_models.h"
#include "tests/gpu/wide_model.h"
#include "tests/gpu/worker_plays.h"

namespace longhaul::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kAllLogprobs = 1'000;

class GoldenModels : public OnGpu, public testing::WithParamInterface<std::string> {};

TEST_P(GoldenModels, AnswerAsOnTheCpu) {
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
    player.open(kA, {.n_logprobs = kAllLogprobs});
    const std::int32_t first = player.prefill(kA, std::span(golden.tokens).first(70), 33);
    player.decode({kA}, {first}, 6);
  };
  expect_the_cpus_answers(make, play, kFloat32);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModels, testing::ValuesIn(golden_model_names()),
                         [](const auto& test) { return test.param; });

// Long enough that streaming heads give up blocks in prefill and in decode.
void read_and_write(Player& player) {
  Random random(1);
  player.open(kA, {.n_logprobs = kAllLogprobs});
  const auto tokens = random_tokens(random, 90, wide_spec().vocab_size);
  player.prefill(kA, tokens, 37);
  player.feed({kA}, random, 20);
}

class CacheTypes : public OnGpu, public testing::WithParamInterface<KvType> {};

TEST_P(CacheTypes, AnswerAsOnTheCpu) {
  expect_the_cpus_answers(wide_model(GetParam()), read_and_write, tolerance_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, CacheTypes, testing::ValuesIn(kPlainKvTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });
INSTANTIATE_TEST_SUITE_P(Groups, CacheTypes, testing::ValuesIn(kGroupedKvTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// Groups in keys or in values alone, beside other types.
TEST_F(OnGpu, GroupsBesideOtherTypesAnswerAsOnTheCpu) {
  for (const auto& [k_type, v_type] :
       {std::pair{KvType::kKivi4, KvType::kKivi2}, std::pair{KvType::kKivi2, KvType::kBf16},
        std::pair{KvType::kInt8, KvType::kKivi4}, std::pair{KvType::kKivi4, KvType::kFp8}}) {
    const auto make = [&](const DeviceId& device) {
      WorkerConfig config = wide_model(KvType::kKivi4)(device);
      config.k_type = k_type;
      config.v_type = v_type;
      return config;
    };
    expect_the_cpus_answers(make, read_and_write, tolerance_of(KvType::kKivi2));
  }
}

// Rows with guesses, some of them wrong, over the edge of a block: one that is closed is open again
// when its last tokens are taken back.
TEST_F(OnGpu, GuessesTakenBackFromAClosedBlockAnswerAsOnTheCpu) {
  const auto play = [](Player& player) {
    Random random(5);
    player.open(kA, {.n_logprobs = kAllLogprobs});
    player.prefill(kA, random_tokens(random, 61, 97), 100);
    std::int64_t n_wrong = 0;
    for (int i = 0; i < 6; ++i) {
      DecodeBatch batch;
      batch.rows.push_back({.sequence = kA,
                            .token = random_tokens(random, 1, 97).front(),
                            .guesses = random_tokens(random, 4, 97),
                            .n_wrong = n_wrong});
      player.step(batch);
      n_wrong = 4 - i % 2;
    }
  };
  expect_the_cpus_answers(wide_model(KvType::kKivi4), play, tolerance_of(KvType::kKivi4));
}

class WeightTypes : public OnGpu, public testing::WithParamInterface<DType> {};

// Activations are rounded before products with such weights: what differs in its last bit may be
// rounded the other way.
TEST_P(WeightTypes, AnswerAsOnTheCpu) {
  expect_the_cpus_answers(wide_model(KvType::kF32, GetParam()), read_and_write, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Fewer, WeightTypes,
                         testing::Values(DType::kBf16, DType::kI8, DType::kI4, DType::kF8E4m3),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// Three forks of a document, asked together, one of them forked again; then the document is
// dropped.
void fork_and_batch(Player& player) {
  Random random(2);
  player.open(kA, {.n_logprobs = kAllLogprobs});
  player.prefill(kA, random_tokens(random, 75, 97), 40);
  for (const SequenceId id : {kB, kC}) {
    player.step(ForkSequence{.parent = kA, .child = id, .sampling = {.n_logprobs = kAllLogprobs}});
    player.prefill(id, random_tokens(random, 5, 97), 100);
  }
  player.step(DropSequences{.sequences = {kA}});
  player.feed({kB, kC}, random, 5);
  player.step(ForkSequence{.parent = kC, .child = kA, .sampling = {.n_logprobs = 3}});
  player.feed({kA, kB, kC}, random, 5);
}

TEST_F(OnGpu, ForksInABatchAnswerAsOnTheCpu) {
  for (const KvType type : {KvType::kF32, KvType::kInt8, KvType::kKivi4, KvType::kKivi2}) {
    expect_the_cpus_answers(wide_model(type), fork_and_batch, tolerance_of(type));
  }
}

// One row after the other, and together with a row of another length. Products of one row may be
// summed in another order than those of two.
TEST_F(OnGpu, ARowHasTheSameAnswersBesideOthers) {
  const auto alone = [&](SequenceId id, std::int64_t n) {
    Player player(wide_model(KvType::kBf16)(kGpu));
    Random random(static_cast<std::uint64_t>(n));
    player.open(id, {.n_logprobs = 4});
    player.decode({id}, {player.prefill(id, random_tokens(random, n, 97), 64)}, 5);
    return player.seen().picked;
  };
  Player both(wide_model(KvType::kBf16)(kGpu));
  std::vector<std::int32_t> first;
  for (const auto& [id, n] : {std::pair{kA, 20}, std::pair{kB, 61}}) {
    Random random(static_cast<std::uint64_t>(n));
    both.open(id, {.n_logprobs = 4});
    first.push_back(both.prefill(id, random_tokens(random, n, 97), 64));
  }
  both.decode({kA, kB}, first, 5);
  for (const auto& [id, n] : {std::pair{kA, 20}, std::pair{kB, 61}}) {
    std::vector<PickedToken> own;
    for (const PickedToken& picked : both.seen().picked) {
      if (picked.sequence == id) own.push_back(picked);
    }
    expect_same_answers(own, alone(id, n), tolerance_of(KvType::kBf16));
  }
}

TEST_F(OnGpu, SamplingDrawsTheCpusTokens) {
  const auto play = [](Player& player) {
    Random random(3);
    player.open(kA, {.temperature = 0.9, .top_k = 20, .top_p = 0.95, .seed = 5, .n_logprobs = 2});
    player.open(kB, {.temperature = 1.3, .seed = 6});
    const std::int32_t a = player.prefill(kA, random_tokens(random, 30, 97), 100);
    const std::int32_t b = player.prefill(kB, random_tokens(random, 20, 97), 100);
    player.decode({kA, kB}, {a, b}, 12);
  };
  expect_the_cpus_answers(wide_model(KvType::kF32), play, kFloat32);
}

// Tokens of chunks, the first of each by the hidden state that the chunk before it left.
TEST_F(OnGpu, ScoresAreTheCpus) {
  const auto play = [](Player& player) {
    Random random(4);
    player.open(kA);
    for (const std::int64_t n : {33, 1, 20}) {
      player.step(PrefillChunk{
          .sequence = kA, .tokens = random_tokens(random, n, 97), .score_logprobs = 5});
    }
  };
  expect_the_cpus_answers(wide_model(KvType::kF32), play, kFloat32);
}

TEST_F(OnGpu, SinksAtPositionsInTheCacheAreTheCpus) {
  const auto make = [](const DeviceId& device) {
    WorkerConfig config = wide_model(KvType::kF32)(device);
    HeadRoles roles = mixed_roles(wide_spec());
    roles.sink_positions = SinkPositions::kInCache;
    config.heads = duo_attention_heads(wide_spec(), roles);
    return config;
  };
  expect_the_cpus_answers(make, read_and_write, kFloat32);
}

// --- What does not work -------------------------------------------------------------------------

std::string message_of_error(ErrorCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_F(OnGpu, WeightsOfAnotherDeviceAreRefused) {
  WorkerConfig config = wide_model(KvType::kF32)({});
  config.device = kGpu;
  const std::string message =
      message_of_error(ErrorCode::kInvalidArgument, [&] { const Worker worker(config); });
  EXPECT_THAT(message, HasSubstr("cuda:0"));
}

// Takes the GPU's memory until little more than `bytes` is left.
std::vector<cuda::Buffer> take_all_but(std::size_t bytes) {
  std::vector<cuda::Buffer> taken;
  for (std::size_t piece = cuda::device_info(0).free_bytes / 2; piece >= bytes / 2;) {
    if (cuda::device_info(0).free_bytes < piece + bytes) {
      piece /= 2;
      continue;
    }
    try {
      taken.emplace_back(piece);
    } catch (const Error&) {
      piece /= 2;
    }
  }
  return taken;
}

constexpr std::size_t kLittle = std::size_t{4} << 20;

TEST_F(OnGpu, WeightsThatDoNotFitSayHowMuchThereIs) {
  const std::vector<cuda::Buffer> taken = take_all_but(kLittle);
  ModelSpec spec = wide_spec();
  spec.d_ff = 1 << 16;
  const std::string message = message_of_error(ErrorCode::kOutOfMemory, [&] {
    static_cast<void>(Weights::synthetic(spec, DType::kF32, 7, kGpu));
  });
  EXPECT_THAT(message, HasSubstr("weights do not fit"));
  EXPECT_THAT(message, HasSubstr("bytes were asked for"));
}

// A GPU without room is a failed step with an account of its memory; the worker goes on.
TEST_F(OnGpu, AStepThatDoesNotFitSaysWhatHasTheMemory) {
  Player player(wide_model(KvType::kBf16)(kGpu));
  player.open(kA);
  player.prefill(kA, std::vector<std::int32_t>{1, 2, 3}, 100);
  {
    const std::vector<cuda::Buffer> taken = take_all_but(kLittle);
    player.open(kB);
    const StepResult result = player.worker().step(
        PrefillChunk{.sequence = kB, .tokens = std::vector<std::int32_t>(20'000, 5)});
    const auto* failed = std::get_if<StepFailed>(&result);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->code, ErrorCode::kOutOfMemory);
    for (const char* part : {"weights", "KV caches", "activations", "were asked for", "are free"}) {
      EXPECT_THAT(failed->message, HasSubstr(part));
    }
    std::printf("  %s\n", failed->message.c_str());
  }
  player.step(DropSequences{.sequences = {kB}});
  player.decode({kA}, {4}, 2);
}

// What the plan counts for a GPU's operators is not less than they take, with one sequence and with
// forks; on Hopper by its own attention.
TEST_F(OnGpu, ScratchMemoryIsWithinWhatIsPlanned) {
  for (const KvType type : {KvType::kInt4, KvType::kKivi4}) {
    set_hopper_attention_rows(1);
    const Workload workload = {.document_tokens = 700,
                               .tail_tokens = 30,
                               .n_sequences = 2,
                               .chunk_len = 350,
                               .k_type = type,
                               .v_type = type,
                               .block_size = quantises_groups(type) ? kKvGroup : 16};
    Player player(wide_model(type, DType::kBf16)(kGpu));
    Random random(3);
    player.open(kA);
    player.prefill(kA, random_tokens(random, 700, 97), 350);
    player.step(ForkSequence{.parent = kA, .child = kB, .sampling = {}});
    player.decode({kA, kB}, {1, 2}, 3);
    set_hopper_attention_rows(kUsualHopperRows);

    const std::int64_t taken = scratch_taken(player.worker());
    EXPECT_GT(taken, 0);
    EXPECT_LE(taken, scratch_bytes({.host = {}, .device = Device::kCuda}, wide_spec(),
                                   dense_heads(wide_spec()), workload) -
                         kProductWorkspaceBytes);
  }
}

// Events between the phases tell them apart: together they are the time of the steps.
TEST_F(OnGpu, PhasesHaveTheGpusTime) {
  const Stopwatch watch;
  Player player(wide_model(KvType::kBf16)(kGpu));
  read_and_write(player);
  const PhaseTimes times = player.worker().times();
  const double seconds = watch.seconds();
  double sum = 0;
  for (std::size_t i = 0; i < kNPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    sum += times[phase];
    if (phase == Phase::kRingWait) {
      EXPECT_EQ(times[phase], 0);
    } else {
      EXPECT_GT(times[phase], 0) << name_of(phase);
    }
  }
  EXPECT_LE(sum, seconds);
}

// Open blocks come in small slabs of their own.
TEST_F(OnGpu, OpenBlocksTakeSmallSlabs) {
  Player player(wide_model(KvType::kKivi4)(kGpu));
  player.open(kA);
  player.prefill(kA, std::vector<std::int32_t>(5, 5), 100);
  EXPECT_GT(player.worker().kv_bytes_reserved(), 0U);
  EXPECT_LE(player.worker().kv_bytes_reserved(), std::size_t{16} << 20);
  player.step(DropSequences{.sequences = {kA}});
  EXPECT_EQ(player.worker().kv_bytes_reserved(), 0U);
}

// Caches have a limit of their own, as on CPUs.
TEST_F(OnGpu, AFullCacheIsSaid) {
  WorkerConfig config = wide_model(KvType::kBf16)(kGpu);
  config.cache_limit_bytes = std::size_t{64} << 10;
  Player player(config);
  player.open(kA);
  const StepResult result = player.worker().step(
      PrefillChunk{.sequence = kA, .tokens = std::vector<std::int32_t>(300, 5)});
  const auto* failed = std::get_if<StepFailed>(&result);
  ASSERT_NE(failed, nullptr);
  EXPECT_THAT(failed->message, HasSubstr("KV cache is full"));
  player.step(DropSequences{.sequences = {kA}});
  EXPECT_EQ(player.worker().kv_bytes_reserved(), 0U);
}

}  // namespace
}  // namespace longhaul::test
