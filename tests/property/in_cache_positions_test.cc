// StreamingLLM's positions: the worker, which never keeps an unrotated key, against the reference
// model, which evicts and then rotates the cache anew for every query (arXiv 2309.17453, section
// 3.2).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "model/heads/kept_blocks.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/support/reference_model.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

// Of the rows from `first_row` to all but the last `n_left_out`.
std::vector<double> log_softmax_of(const std::vector<double>& logits, std::int64_t vocab_size,
                                   std::int64_t first_row, std::int64_t n_left_out) {
  const auto width = static_cast<std::size_t>(vocab_size);
  const std::size_t begin = static_cast<std::size_t>(first_row) * width;
  const std::size_t end = logits.size() - static_cast<std::size_t>(n_left_out) * width;
  return log_softmax(std::span(logits).subspan(begin, end - begin), vocab_size);
}

// The same heads, but tokens leave the window several at a time.
struct Sliding {
  HeadTable heads;
  std::vector<KeyMask> masks;
  std::int64_t slide = 1;
};
Sliding sliding(const ModelSpec& spec, HeadRoles roles, std::int64_t slide) {
  Sliding result{duo_attention_heads(spec, roles), key_masks(spec, roles), slide};
  std::size_t i = 0;
  for (const LayerId layer : IdRange<LayerId>(spec.n_layers)) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      KeyMask& mask = result.masks.at(i++);
      if (kind_of(result.heads.at(layer, kv_head)) != HeadKind::kStreaming) continue;
      mask.slide = std::min(slide, roles.recent);
      result.heads.set(layer, kv_head,
                       {.see = SeeSinkSlide{.sink = roles.sink,
                                            .capacity = roles.sink + roles.recent,
                                            .slide = mask.slide,
                                            .positions = roles.sink_positions}});
    }
  }
  return result;
}

HeadRoles random_in_cache_roles(Random& random, const ModelSpec& spec) {
  HeadRoles roles = random_roles(random, spec);
  if (random.chance(0.5)) std::ranges::fill(roles.roles, HeadRole::kStreaming);
  roles.sink_positions = SinkPositions::kInCache;
  return roles;
}

struct Case {
  ModelSpec spec;
  HeadRoles roles;
  TemporaryFolder folder;
  explicit Case(Random& random, std::uint64_t seed) : spec(random_spec(random)) {
    roles = random_in_cache_roles(random, spec);
    write_model(folder.path(), {.spec = spec, .seed = seed});
  }
};

TEST(InCachePositions, EqualEvictionAndNewRotationForAnyChunks) {
  for (int round = 0; round < 25 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const Case c(random, seed);
    const ModelFolder model(c.folder.path());
    const std::vector<std::int32_t> tokens =
        random_tokens(random, random.integer(2, 200), c.spec.vocab_size);
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = duo_attention_heads(c.spec, c.roles),
                   .block_size = 16 * random.integer(1, 4),
                   .n_threads = 2});
    const std::vector<float> got = log_probabilities(
        worker, tokens, random_chunks(random, static_cast<std::int64_t>(tokens.size())));
    const ReferenceModel reference(model);
    const std::vector<double> want = log_softmax_of(
        reference.logits(tokens, key_masks(reference.spec(), c.roles)), c.spec.vocab_size, 0, 1);
    EXPECT_TRUE(close(got, want, logits_tolerance(DType::kF32)))
        << c.spec.model_type << ", sink " << c.roles.sink << ", recent " << c.roles.recent << ", "
        << tokens.size() << " tokens";
  }
}

// Bulk slide: a buffer that forgets several tokens at once, sinks at positions in it or in the
// text.
TEST(SlidingCaches, EqualABufferThatForgetsForAnyChunks) {
  for (int round = 0; round < 25 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + 700 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Case c(random, seed);
    if (random.chance(0.3)) c.roles.sink_positions = SinkPositions::kAbsolute;
    const Sliding slides = sliding(c.spec, c.roles, random.integer(2, 40));
    const ModelFolder model(c.folder.path());
    const std::vector<std::int32_t> tokens =
        random_tokens(random, random.integer(2, 200), c.spec.vocab_size);
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = slides.heads,
                   .block_size = 16 * random.integer(1, 4),
                   .n_threads = 2});
    const std::vector<float> got = log_probabilities(
        worker, tokens, random_chunks(random, static_cast<std::int64_t>(tokens.size())));
    const ReferenceModel reference(model);
    const std::vector<double> want =
        log_softmax_of(reference.logits(tokens, slides.masks), c.spec.vocab_size, 0, 1);
    EXPECT_TRUE(close(got, want, logits_tolerance(DType::kF32)))
        << c.spec.model_type << ", slide " << slides.slide << ", sink " << c.roles.sink
        << ", recent " << c.roles.recent << ", " << tokens.size() << " tokens";
  }
}

// One endless answer: what the cache takes stays what the formula says, at every token.
TEST(SlidingCaches, TakeTheBytesOfTheFormulaAtEveryToken) {
  ModelSpec spec = tiny_spec();
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  std::ranges::fill(roles.roles, HeadRole::kStreaming);
  roles.sink = 5;
  roles.recent = 60;
  roles.sink_positions = SinkPositions::kInCache;
  const HeadTable heads = sliding(spec, roles, 13).heads;
  Worker worker({.weights = tiny_weights(spec), .heads = heads, .block_size = 16, .n_threads = 1});
  const KvBlockShape shape{.block_size = 16, .head_dim = spec.head_dim};
  done(worker.step(OpenSequence{.sequence = SequenceId{1}, .sampling = {}}));
  for (std::int64_t n = 1; n <= 300; ++n) {
    done(worker.step(DecodeBatch{.rows = {{SequenceId{1}, static_cast<std::int32_t>(n % 7)}}}));
    const std::int64_t n_blocks = sequence_blocks(heads, {0, spec.n_layers}, 16, n);
    ASSERT_EQ(worker.kv_bytes_in_use(), static_cast<std::size_t>(n_blocks) * shape.bytes()) << n;
  }
}

// Several sequences of different lengths decoded together, each with its own turn of the query.
TEST(InCachePositions, HoldInBatchesOfForks) {
  for (int round = 0; round < 5 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + 500 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const Case c(random, seed);
    const ModelFolder model(c.folder.path());
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = duo_attention_heads(c.spec, c.roles),
                   .block_size = 16,
                   .n_threads = 1});
    const ReferenceModel reference(model);
    const SamplingParams sampling{.n_logprobs = c.spec.vocab_size};
    const std::vector<std::int32_t> shared = random_tokens(random, 40, c.spec.vocab_size);
    open_with(worker, SequenceId{0}, shared, equal_chunks(40, 7));
    std::vector<std::vector<std::int32_t>> texts;
    for (std::int64_t i = 1; i <= 3; ++i) {
      texts.push_back(shared);
      const auto more = random_tokens(random, random.integer(1, 60), c.spec.vocab_size);
      texts.back().insert(texts.back().end(), more.begin(), more.end());
      done(worker.step(
          ForkSequence{.parent = SequenceId{0}, .child = SequenceId{i}, .sampling = sampling}));
      done(worker.step(PrefillChunk{.sequence = SequenceId{i}, .tokens = more}));
    }
    for (int step = 0; step < 3; ++step) {
      DecodeBatch batch;
      for (std::int64_t i = 1; i <= 3; ++i) {
        const auto token = random_tokens(random, 1, c.spec.vocab_size).at(0);
        texts[static_cast<std::size_t>(i - 1)].push_back(token);
        batch.rows.push_back({SequenceId{i}, token});
      }
      const StepDone result = done(worker.step(batch));
      for (std::size_t i = 0; i < 3; ++i) {
        std::vector<float> got(static_cast<std::size_t>(c.spec.vocab_size));
        for (const TokenLogprob& t : result.picked.at(i).top)
          got[static_cast<std::size_t>(t.token)] = t.logprob;
        const std::vector<double> want =
            log_softmax_of(reference.logits(texts[i], key_masks(reference.spec(), c.roles)),
                           c.spec.vocab_size, static_cast<std::int64_t>(texts[i].size()) - 1, 0);
        EXPECT_TRUE(close(got, want, logits_tolerance(DType::kF32))) << "sequence " << i + 1;
      }
    }
  }
}

// A window over a cache is not a window that is computed anew (the paper's two baselines): keys and
// values of upper layers carry what they saw of tokens that are gone. With one layer they carry
// nothing, and sinks and window are a text of their own.
TEST(InCachePositions, AreThoseOfAWindowComputedAnewWhereThereIsOneLayer) {
  for (const std::int64_t n_layers : {1, 3}) {
    ModelSpec spec = tiny_spec();
    spec.n_layers = n_layers;
    spec.attention_window.resize(static_cast<std::size_t>(n_layers));
    HeadRoles roles = HeadRoles::all_retrieval(n_layers, spec.n_kv_heads);
    std::ranges::fill(roles.roles, HeadRole::kStreaming);
    roles.sink = 5;
    roles.recent = 40;
    roles.sink_positions = SinkPositions::kInCache;
    const auto weights = tiny_weights(spec);
    Random random(base_seed() + 78);
    const std::vector<std::int32_t> text = random_tokens(random, 150, spec.vocab_size);
    Worker cached({.weights = weights, .heads = duo_attention_heads(spec, roles), .n_threads = 1});
    const std::vector<float> all = log_probabilities(cached, text, equal_chunks(150, 33));
    // What the query at 148 sees of 149 tokens; one more stands behind it, since the last one's
    // row is not scored.
    std::vector<std::int32_t> seen(text.begin(), text.begin() + roles.sink);
    seen.insert(seen.end(), text.begin() + 149 - roles.recent, text.end());
    Worker dense({.weights = weights, .n_threads = 1});
    const std::vector<float> anew = log_probabilities(dense, seen, equal_chunks(46, 46));
    const std::span<const float> want =
        std::span(anew).last(static_cast<std::size_t>(spec.vocab_size));
    const std::span<const float> got =
        std::span(all).last(static_cast<std::size_t>(spec.vocab_size));
    EXPECT_EQ(bool{close(got, want, logits_tolerance(DType::kF32))}, n_layers == 1);
  }
}

// While nothing has been evicted they are the positions in the text; without sinks they never
// differ; afterwards they do.
TEST(InCachePositions, DifferFromAbsoluteOnesOnlyOnceSinksHaveMoved) {
  Random random(base_seed() + 77);
  ModelSpec spec = random_spec(random);
  std::ranges::fill(spec.attention_window, ModelSpec::kNoWindow);
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  std::ranges::fill(roles.roles, HeadRole::kStreaming);
  const auto weights =
      std::make_shared<const Weights>(Weights::synthetic(spec, DType::kF32, base_seed()));
  const std::vector<std::int32_t> tokens = random_tokens(random, 120, spec.vocab_size);
  const auto scores = [&](std::int64_t sink, SinkPositions positions) {
    roles.sink = sink;
    roles.recent = 60 - sink;
    roles.sink_positions = positions;
    Worker worker({.weights = weights, .heads = duo_attention_heads(spec, roles), .n_threads = 1});
    return log_probabilities(worker, tokens, equal_chunks(120, 50));
  };
  const auto in_cache = scores(5, SinkPositions::kInCache);
  const auto absolute = scores(5, SinkPositions::kAbsolute);
  const auto n_before = static_cast<std::ptrdiff_t>(60 * spec.vocab_size);
  const auto part = [&](const std::vector<float>& all, bool is_first) {
    return is_first ? std::vector<float>(all.begin(), all.begin() + n_before)
                    : std::vector<float>(all.begin() + n_before, all.end());
  };
  const Tolerance tolerance = logits_tolerance(DType::kF32);
  EXPECT_TRUE(close(part(in_cache, true), part(absolute, true), tolerance));
  EXPECT_FALSE(close(part(in_cache, false), part(absolute, false), tolerance));
  EXPECT_TRUE(
      close(scores(0, SinkPositions::kInCache), scores(0, SinkPositions::kAbsolute), tolerance));
}

}  // namespace
}  // namespace longhaul::test
