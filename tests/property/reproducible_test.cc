// --reproducible on one rank: log-probabilities have the same bits however a text is cut into
// chunks, whichever sequences are beside it and however many threads compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "partition/reproducible.h"
#include "tests/property/worker_cases.h"
#include "tests/support/random.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kAll = 1'000'000;

// Wide enough that products have several chunks of inputs and tiles of outputs.
ModelSpec wide_spec() {
  ModelSpec spec = tiny_spec();
  spec.d_model = 160;
  spec.d_ff = 1168;
  spec.n_layers = 2;
  spec.n_heads = 8;
  spec.n_kv_heads = 2;
  spec.head_dim = 32;
  spec.attention_window.assign(2, ModelSpec::kNoWindow);
  return spec;
}

struct Setting {
  DType weights = DType::kBf16;
  KvType cache = KvType::kBf16;
  bool compensates = false;  // streaming heads keep a key for what is gone
};

struct Cut {
  std::vector<std::int64_t> chunks;  // of the document
  std::int64_t prompt_chunk = kAll;
  int n_threads = 1;
  int n_beside = 0;  // sequences that are answered together with it
};

// What is looked at: log-probabilities of the document's tokens and of six generated ones.
std::vector<float> outcome(const Setting& setting, const std::shared_ptr<const Weights>& weights,
                           const HeadTable& heads, std::span<const std::int32_t> document,
                           std::span<const std::int32_t> prompt, const Cut& run) {
  Worker worker({.weights = weights,
                 .heads = heads,
                 .k_type = setting.cache,
                 .v_type = setting.cache,
                 .n_threads = run.n_threads,
                 .reproducible = true});
  std::vector<float> out = log_probabilities(worker, document, run.chunks);
  constexpr SequenceId kDocument{0};
  done(worker.step(OpenSequence{.sequence = kDocument, .sampling = {}}));
  std::size_t begin = 0;
  for (const std::int64_t n : run.chunks) {
    const auto chunk = document.subspan(begin, static_cast<std::size_t>(n));
    begin += chunk.size();
    done(worker.step(PrefillChunk{.sequence = kDocument, .tokens = {chunk.begin(), chunk.end()}}));
  }
  const auto add_top = [&](const PickedToken& picked) {
    for (const TokenLogprob& t : picked.top) {
      out.push_back(static_cast<float>(t.token));
      out.push_back(t.logprob);
    }
  };
  std::vector<DecodeBatch::Row> rows;
  for (int i = 0; i <= run.n_beside; ++i) {
    const SequenceId fork{i + 1};
    done(worker.step(
        ForkSequence{.parent = kDocument, .child = fork, .sampling = {.n_logprobs = 20}}));
    // The others ask something else.
    const auto asked = prompt.subspan(i == 0 ? 0 : static_cast<std::size_t>(i) % prompt.size());
    StepDone last = prefill(worker, fork, asked, i == 0 ? run.prompt_chunk : kAll);
    if (i == 0) add_top(last.picked.at(0));
    rows.push_back({fork, last.picked.at(0).token});
  }
  for (int step = 0; step < 6; ++step) {
    const StepDone answer = done(worker.step(DecodeBatch{rows}));
    add_top(answer.picked.at(0));
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r].token = answer.picked.at(r).token;
  }
  return out;
}

class Reproducible : public testing::TestWithParam<Setting> {};

TEST_P(Reproducible, ChunksBatchesAndThreadsChangeNoBit) {
  const Setting setting = GetParam();
  for (int round = 0; round < engine_cases(3); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const bool is_wide = round == 0;
    ModelSpec spec = is_wide ? wide_spec() : random_spec(random);
    if (setting.cache != KvType::kF32 && setting.cache != KvType::kBf16) spec.head_dim = 32;
    const auto weights = tiny_weights(spec, setting.weights, seed);
    HeadRoles roles = random_roles(random, spec);
    roles.recent = random.integer(1, 300);  // windows of several panels
    HeadTable heads = duo_attention_heads(spec, roles);
    if (setting.compensates) heads = with_compensation_keys(heads);
    const std::int64_t n = is_wide ? 700 : 333;
    const auto document = random_tokens(random, n, spec.vocab_size);
    const auto prompt = random_tokens(random, 37, spec.vocab_size);
    const auto of = [&](const Cut& run) {
      return outcome(setting, weights, heads, document, prompt, run);
    };
    const std::vector<float> want = of({.chunks = {n}});
    for (const std::int64_t chunk_len : {1, 23, 200}) {
      if (chunk_len == 1 && is_wide) continue;  // takes long
      EXPECT_EQ(of({.chunks = equal_chunks(n, chunk_len)}), want) << "chunks of " << chunk_len;
    }
    EXPECT_EQ(of({.chunks = random_chunks(random, n), .prompt_chunk = 5}), want) << "any chunks";
    EXPECT_EQ(of({.chunks = {n}, .n_beside = 3}), want) << "three sequences beside it";
    EXPECT_EQ(of({.chunks = {n}, .n_beside = 40}), want) << "forty sequences beside it";
    EXPECT_EQ(of({.chunks = {n}, .n_threads = 3}), want) << "three threads";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, Reproducible,
    testing::Values(Setting{DType::kBf16, KvType::kBf16}, Setting{DType::kF32, KvType::kF32},
                    Setting{DType::kI8, KvType::kBf16}, Setting{DType::kI4, KvType::kBf16},
                    Setting{DType::kBf16, KvType::kInt8}, Setting{DType::kF32, KvType::kInt4},
                    Setting{DType::kF32, KvType::kFp8}, Setting{DType::kBf16, KvType::kBf16, true},
                    Setting{DType::kF32, KvType::kInt8, true}),
    [](const auto& tested) {
      return std::string(name_of(tested.param.weights)) + "_" +
             std::string(name_of(tested.param.cache)) + (tested.param.compensates ? "_razor" : "");
    });

// Few rows over so many keys that they are cut for several threads.
TEST(ReproducibleRows, LongCachesToo) {
  const Setting setting;
  const ModelSpec spec = wide_spec();
  const auto weights = tiny_weights(spec, setting.weights);
  Random random(11);
  const auto document = random_tokens(random, 4500, spec.vocab_size);
  const auto prompt = random_tokens(random, 70, spec.vocab_size);
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  const auto of = [&](std::int64_t chunk_len, std::int64_t prompt_chunk) {
    return outcome(
        setting, weights, duo_attention_heads(spec, roles), document, prompt,
        {.chunks = equal_chunks(4500, chunk_len), .prompt_chunk = prompt_chunk, .n_threads = 2});
  };
  EXPECT_EQ(of(2048, 3), of(4500, kAll));
}

TEST(ReproducibleRows, RefusesByNameWhatItCannotDo) {
  const ModelSpec spec = tiny_spec();
  const HeadTable plain = dense_heads(spec);
  EXPECT_FALSE(why_not_reproducible(plain, Device::kCpu).has_value());
  EXPECT_TRUE(why_not_reproducible(plain, Device::kCuda)->find("GPUs") != std::string::npos);
  const HeadTable chosen(spec.n_layers, spec.n_kv_heads,
                         HeadPolicy{.keep = KeepBudget{.n_tokens = 8}});
  EXPECT_THAT(*why_not_reproducible(chosen, Device::kCpu),
              testing::StartsWith("KV head 0 of layer 0: tokens chosen by their scores"));
  const HeadTable in_cache =
      streaming_heads(spec, {.sink = 4, .recent = 16, .positions = SinkPositions::kInCache});
  EXPECT_THAT(*why_not_reproducible(in_cache, Device::kCpu),
              testing::HasSubstr("sinks at positions in the cache"));
  const HeadTable without_sinks =
      streaming_heads(spec, {.sink = 0, .recent = 16, .positions = SinkPositions::kInCache});
  EXPECT_FALSE(why_not_reproducible(without_sinks, Device::kCpu).has_value());
  const HeadTable with_rest(
      spec.n_layers, spec.n_kv_heads,
      HeadPolicy{.see = SeeSinkRecent{.sink = 4, .recent = 16}, .rest = Rest::kCompensationKey});
  EXPECT_FALSE(why_not_reproducible(with_rest, Device::kCpu).has_value());
  EXPECT_THROW(Worker({.weights = tiny_weights(spec), .heads = in_cache, .reproducible = true}),
               Error);
}

}  // namespace
}  // namespace longhaul::test
