// Methods that read chosen pages (Quest): what answers see of a text, against double precision, on
// one rank. Rings are in tests/multirank.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "tests/property/chosen_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/compare.h"
#include "tests/support/log_softmax.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

HeadTable paged_heads(const ModelSpec& spec, const ReadTopPages& choose, std::int64_t n_dense) {
  HeadTable heads = dense_heads(spec);
  for (std::int64_t layer = n_dense; layer < spec.n_layers; ++layer) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(spec.n_kv_heads)) {
      if (kind_of(heads.at(LayerId{layer}, kv_head)) == HeadKind::kRetrieval)
        heads.set(LayerId{layer}, kv_head, {.choose = choose});
    }
  }
  return heads;
}

std::vector<KeyMask> masks_of(const HeadTable& heads, std::int64_t n_prompt, double& margin) {
  std::vector<KeyMask> masks;
  for (const LayerId layer : IdRange<LayerId>(heads.n_layers())) {
    for (const KvHeadId kv_head : IdRange<KvHeadId>(heads.n_kv_heads())) {
      const KeyWindow window = heads.window(layer, kv_head);
      KeyMask mask{.sink = window.sink, .recent = window.recent};
      if (const auto* choose = std::get_if<ReadTopPages>(&heads.at(layer, kv_head).choose)) {
        mask.pages_from = n_prompt;
        mask.page_tokens = choose->page_tokens;
        mask.n_pages = choose->n_pages();
        mask.page_margin = &margin;
      }
      masks.push_back(mask);
    }
  }
  return masks;
}

TEST(ChosenPages, AnswersAreThoseOfDoublePrecisionForAnyChunksAndForks) {
  constexpr double kClear = 1e-4;  // bounds this far apart are not changed by rounding to float
  int n_clear = 0;
  for (int round = 0; round < 15 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    const std::int64_t block_size = 16 * random.integer(1, 3);
    const std::int64_t page = block_size >> random.integer(0, 3);
    const HeadTable heads = paged_heads(spec, {page, page * random.integer(1, 5)},
                                        random.integer(0, spec.n_layers - 1));
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .seed = seed});
    const ModelFolder model(folder.path());
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = heads,
                   .block_size = block_size,
                   .n_threads = 1});
    const std::int64_t n = random.integer(2, 150);
    std::vector<std::int32_t> text = random_tokens(random, n, spec.vocab_size);
    for (const StepCommand& command :
         read_document(SequenceId{1}, text, random_chunks(random, n), AfterPrefill::kDocumentEnd)) {
      done(worker.step(command));
    }
    const SequenceId fork{2};
    done(worker.step(ForkSequence{
        .parent = SequenceId{1}, .child = fork, .sampling = {.n_logprobs = spec.vocab_size}}));
    const auto question = random_tokens(random, random.integer(1, 20), spec.vocab_size);
    text.insert(text.end(), question.begin(), question.end());
    StepDone answer = done(worker.step(
        PrefillChunk{.sequence = fork, .tokens = question, .after = AfterPrefill::kSample}));
    const auto n_prompt = static_cast<std::int64_t>(text.size());
    std::vector<std::vector<float>> got;
    for (int step = 0; step < 12; ++step) {
      text.push_back(answer.picked.at(0).token);
      answer = done(worker.step(DecodeBatch{.rows = {{fork, text.back()}}}));
      auto& row = got.emplace_back(static_cast<std::size_t>(spec.vocab_size));
      for (const TokenLogprob& t : answer.picked.at(0).top)
        row[static_cast<std::size_t>(t.token)] = t.logprob;
    }
    double margin = std::numeric_limits<double>::infinity();
    const auto want = ReferenceModel(model).logits(text, masks_of(heads, n_prompt, margin));
    if (margin < kClear) continue;
    ++n_clear;
    for (std::size_t step = 0; step < got.size(); ++step) {
      const auto vocab_size = static_cast<std::size_t>(spec.vocab_size);
      const std::span<const double> row = std::span(want).subspan(
          (static_cast<std::size_t>(n_prompt) + step) * vocab_size, vocab_size);
      EXPECT_TRUE(close(got[step], log_softmax(row), logits_tolerance(DType::kF32)));
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(n_clear, 3 * intensity());
}

TEST(ChosenPages, PagesThatDoNotFillABlockAreRefused) {
  const ModelSpec spec = tiny_spec();
  EXPECT_THROW(Worker({.weights = tiny_weights(),
                       .heads = paged_heads(spec, {24, 48}, 0),
                       .block_size = 32,
                       .n_threads = 1}),
               Error);
}

}  // namespace
}  // namespace longhaul::test
