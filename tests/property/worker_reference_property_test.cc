// Whole random models against the reference model: any roles, any window, any chunks give the
// log-probabilities of the mask that the roles stand for.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

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

// Every row but the last.
std::vector<double> log_softmax_of_others(const std::vector<double>& logits,
                                          std::int64_t vocab_size) {
  return log_softmax(std::span(logits).first(logits.size() - static_cast<std::size_t>(vocab_size)),
                     vocab_size);
}

TEST(WorkerEqualsReference, ForRandomModelsRolesAndChunks) {
  for (int round = 0; round < 25 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    const HeadRoles roles = random_roles(random, spec);
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .seed = seed});
    const ModelFolder model(folder.path());
    const std::vector<std::int32_t> tokens =
        random_tokens(random, random.integer(2, 180), spec.vocab_size);

    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = duo_attention_heads(spec, roles),
                   .block_size = 16 * random.integer(1, 4),
                   .n_threads = 2});
    const std::vector<float> got = log_probabilities(
        worker, tokens, random_chunks(random, static_cast<std::int64_t>(tokens.size())));
    const ReferenceModel reference(model);
    const std::vector<double> want = log_softmax_of_others(
        reference.logits(tokens, key_masks(reference.spec(), roles)), spec.vocab_size);
    EXPECT_TRUE(close(got, want, logits_tolerance(DType::kF32)))
        << spec.model_type << ", sink " << roles.sink << ", recent " << roles.recent << ", "
        << tokens.size() << " tokens";
  }
}

TEST(WorkerEqualsReference, WithKeysForWhatHasLeftWindows) {
  for (int round = 0; round < 12 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    const HeadRoles roles = random_roles(random, spec);
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .seed = seed});
    const ModelFolder model(folder.path());
    const std::vector<std::int32_t> tokens =
        random_tokens(random, random.integer(100, 180), spec.vocab_size);
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = with_compensation_keys(duo_attention_heads(spec, roles)),
                   .block_size = 16,
                   .n_threads = 2});
    const std::vector<float> got = log_probabilities(
        worker, tokens, random_chunks(random, static_cast<std::int64_t>(tokens.size())));
    const ReferenceModel reference(model);
    const std::vector<double> want = log_softmax_of_others(
        reference.logits(tokens, compensated_masks(reference.spec(), roles)), spec.vocab_size);
    EXPECT_TRUE(close(got, want, logits_tolerance(DType::kF32)))
        << spec.model_type << ", sink " << roles.sink << ", recent " << roles.recent;
  }
}

TEST(WorkerEqualsReference, WithBf16WeightsAndCachesWithinTheTable) {
  for (int round = 0; round < 6 * intensity(); ++round) {
    const std::uint64_t seed = base_seed() * 1000 + static_cast<std::uint64_t>(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const ModelSpec spec = random_spec(random);
    const HeadRoles roles = random_roles(random, spec);
    const TemporaryFolder folder;
    write_model(folder.path(), {.spec = spec, .dtype = DType::kBf16, .seed = seed});
    const ModelFolder model(folder.path());
    const std::vector<std::int32_t> tokens = random_tokens(random, 100, spec.vocab_size);
    Worker worker({.weights = std::make_shared<const Weights>(Weights::load(model)),
                   .heads = duo_attention_heads(spec, roles),
                   .k_type = KvType::kBf16,
                   .v_type = KvType::kBf16,
                   .n_threads = 1});
    const std::vector<float> got = log_probabilities(worker, tokens, random_chunks(random, 100));
    const ReferenceModel reference(model);
    const std::vector<double> want = log_softmax_of_others(
        reference.logits(tokens, key_masks(reference.spec(), roles)), spec.vocab_size);
    EXPECT_TRUE(close(got, want, logits_tolerance(DType::kBf16)));
  }
}

}  // namespace
}  // namespace longhaul::test
