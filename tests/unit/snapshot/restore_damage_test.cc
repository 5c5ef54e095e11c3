// Saved caches of every kind of method, with what these go on with: a flipped bit is found before
// anything is used, wherever in the files it is.
#include <gtest/gtest.h>

#include <string>

#include "model/heads/cache_method.h"
#include "tests/property/recovered_tokens.h"
#include "tests/property/worker_cases.h"
#include "tests/support/paths.h"
#include "tests/unit/snapshot/flip_bit.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

struct SavedMethod {
  std::string name;
  CacheMethod method;
  bool is_whole = true;  // the document was read to its end
};

class RestoreDamage : public testing::TestWithParam<SavedMethod> {
 protected:
  RestoreDamage() {
    if (std::holds_alternative<DmcMethod>(GetParam().method)) spec_ = merging_spec(random_);
    weights_ = tiny_weights(spec_);
    classes_ = std::make_shared<const TokenClasses>(random_classes(random_, spec_.vocab_size));
    tokens_ = random_tokens(random_, 150, spec_.vocab_size);
    Worker writer = worker();
    const AfterPrefill end =
        GetParam().is_whole ? AfterPrefill::kDocumentEnd : AfterPrefill::kNothing;
    for (const StepCommand& command :
         read_document({1}, tokens_, equal_chunks(std::ssize(tokens_), 40), end))
      done(writer.step(command));
    done(writer.step(
        SaveSequence{{1}, folder_.path().string(), "doc", tokens_, {{"content_id", "abc"}}}));
  }
  Worker worker() const {
    const HeadRoles roles = HeadRoles::all_retrieval(spec_.n_layers, spec_.n_kv_heads);
    return Worker({.weights = weights_,
                   .heads = method_heads(spec_, roles, {.all = GetParam().method, .full = {}}),
                   .block_size = 16,
                   .token_classes = classes_,
                   .n_threads = 1});
  }
  StepResult restored_by(Worker& reader) const {
    return reader.step(RestoreSequence{.sequence = {9},
                                       .folder = folder_.path().string(),
                                       .name = "doc",
                                       .content_id = "abc",
                                       .n_tokens = std::ssize(tokens_)});
  }

  Random random_{base_seed()};
  ModelSpec spec_ = tiny_spec();
  std::shared_ptr<const Weights> weights_;
  std::shared_ptr<const TokenClasses> classes_;
  std::vector<std::int32_t> tokens_;
  TemporaryFolder folder_;
};

TEST_P(RestoreDamage, EveryFlippedBitIsFoundBeforeUse) {
  Worker reader = worker();
  for (int round = 0; round < 100; ++round) {
    const fs::path path = folder_.path() / (round % 2 == 0 ? "doc.h5" : "doc.part-0000.h5");
    const auto at = random_.integer(0, static_cast<std::int64_t>(fs::file_size(path)) - 1);
    const int bit = static_cast<int>(random_.integer(0, 7));
    test::flip_bit(path, at, bit);
    const StepResult result = restored_by(reader);
    ASSERT_TRUE(std::holds_alternative<StepFailed>(result)) << "byte " << at << " of " << path;
    EXPECT_EQ(std::get<StepFailed>(result).code, ErrorCode::kCorruptData);
    EXPECT_EQ(reader.kv_bytes_in_use(), 0U);
    test::flip_bit(path, at, bit);
  }
  done(restored_by(reader));
}

INSTANTIATE_TEST_SUITE_P(
    Of, RestoreDamage,
    testing::Values(
        SavedMethod{"SnapKv", SnapKvMethod{{.capacity = 40, .window = 5, .kernel = 3}}},
        SavedMethod{"SnapKvHalfRead", SnapKvMethod{{.capacity = 40, .window = 5, .kernel = 3}},
                    false},
        SavedMethod{
            "SnapKvOfEach",
            SnapKvMethod{{.capacity = 40, .window = 5, .kernel = 3, .group = GroupScore::kEach}}},
        SavedMethod{"H2o", H2oMethod{.capacity = 40, .recent = 10}},
        SavedMethod{"FastGen", FastGenMethod{.threshold = 0.5}},
        SavedMethod{"FastGenOfDocuments",
                    FastGenMethod{.threshold = 0.5, .after = KeepWhen::kAfterDocument}},
        SavedMethod{"Razor", RazorMethod{.sink = 3, .window = 30}},
        SavedMethod{"Infinite", SlideMethod{.sink = 3, .cap = 40, .slide = 7}},
        SavedMethod{"Dmc", DmcMethod{}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace longhaul::test
