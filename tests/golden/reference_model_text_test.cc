// The reference model on two trained models: the published greedy text of stories260K, and the
// needle model's answers under dense, duo and all-streaming attention. Both lie beside the
// checkout; the tests skip where they are missing.
#include <gtest/gtest.h>

#include <vector>

#include "model/head_profile.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/golden/golden_models.h"
#include "tests/golden/published_text.h"
#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/support/reference_model.h"

namespace longhaul::test {
namespace {

Logits logits_of(const ReferenceModel& model, const std::vector<std::int32_t>& ids,
                 const std::vector<KeyMask>& masks) {
  return {static_cast<std::int64_t>(ids.size()), model.spec().vocab_size, model.logits(ids, masks)};
}

struct GreedyArgs {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> guess;  // a right one costs one pass, each wrong token one more
  std::int64_t n_tokens = 0;        // at most; `eos` ends it before and is left out
  std::int32_t eos = 0;
};

std::vector<std::int32_t> greedy(const ReferenceModel& model, const std::vector<KeyMask>& masks,
                                 const GreedyArgs& args) {
  std::vector<std::int32_t> ids = args.prompt;
  ids.insert(ids.end(), args.guess.begin(), args.guess.end());
  ids.resize(args.prompt.size() + static_cast<std::size_t>(args.n_tokens), args.eos);
  const auto answer = [&](std::size_t end) {
    return std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(args.prompt.size()),
                                     ids.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (std::size_t checked = args.prompt.size(); checked < ids.size();) {
    const Logits logits = logits_of(model, ids, masks);
    for (bool as_guessed = true; as_guessed && checked < ids.size(); ++checked) {
      const std::int32_t picked = argmax(logits.row(static_cast<std::int64_t>(checked) - 1));
      if (picked == args.eos) return answer(checked);
      as_guessed = picked == ids[checked];
      ids[checked] = picked;
    }
  }
  return answer(ids.size());
}

TEST(ReferenceModelText, StoriesContinueAsPublished) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/stories260K");
  const ModelFolder folder(shared_path("models/stories260K"));
  const ReferenceModel model(folder);
  const Tokenizer tokenizer = Tokenizer::from_file(folder.tokenizer_path());
  const std::vector<std::int32_t> guess =
      tokenizer.encode(kStoriesText, {.add_special_tokens = false});
  const std::vector<KeyMask> dense = key_masks(
      model.spec(), HeadRoles::all_retrieval(model.spec().n_layers, model.spec().n_kv_heads));
  const std::vector<std::int32_t> ids = greedy(model, dense,
                                               {.prompt = {folder.config().bos_token_id.value()},
                                                .guess = guess,
                                                .n_tokens = kStoriesTokens,
                                                .eos = folder.config().eos_token_ids.at(0)});
  EXPECT_EQ(tokenizer.decode(ids), kStoriesText);
}

class ReferenceModelNeedle : public testing::Test {
 protected:
  void SetUp() override {
    LONGHAUL_SKIP_UNLESS_SHARED("models/needle");
    questions_ = read_needle_questions(shared_path("models/needle/reference.json"));
    // Every question costs seconds in double precision: two of them, unless more is asked for.
    if (intensity() == 1) questions_.resize(2);
  }

  void expect_answers(const HeadRoles& roles, NeedleQuestion::Answer NeedleQuestion::*answer) {
    const ModelFolder folder(shared_path("models/needle"));
    const ReferenceModel model(folder);
    const Tokenizer tokenizer = Tokenizer::from_file(folder.tokenizer_path());
    const std::vector<KeyMask> masks = key_masks(model.spec(), roles);
    for (const NeedleQuestion& question : questions_) {
      const NeedleQuestion::Answer& want = question.*answer;
      EXPECT_EQ(tokenizer.encode(question.prompt), question.ids);
      const std::vector<std::int32_t> guess =
          tokenizer.encode(want.text, {.add_special_tokens = false});
      const std::vector<std::int32_t> ids =
          greedy(model, masks,
                 {.prompt = question.ids,
                  .guess = guess,
                  .n_tokens = folder.generation().max_new_tokens.value(),
                  .eos = folder.config().eos_token_ids.at(0)});
      EXPECT_EQ(tokenizer.decode(ids), want.text);

      const Logits logits = logits_of(model, question.ids, masks);
      const std::span<const double> last = logits.row(logits.n_tokens - 1);
      for (std::size_t i = 0; i < want.top_ids.size(); ++i) {
        EXPECT_NEAR(last[static_cast<std::size_t>(want.top_ids[i])], want.top_logits[i], 1e-4)
            << "logit " << i << " of the question for " << question.expected;
      }
    }
  }

  HeadProfile profile() const { return read_head_profile(shared_path("models/needle/profile")); }
  std::vector<NeedleQuestion> questions_;
};

TEST_F(ReferenceModelNeedle, Dense) {
  const HeadProfile heads = profile();
  expect_answers(HeadRoles::all_retrieval(heads.n_layers, heads.n_kv_heads),
                 &NeedleQuestion::dense);
}

TEST_F(ReferenceModelNeedle, Duo) {
  expect_answers(choose_roles(profile(), std::nullopt), &NeedleQuestion::duo);
}

TEST_F(ReferenceModelNeedle, AllStreaming) {
  expect_answers(choose_roles(profile(), 0.0), &NeedleQuestion::streaming);
}

}  // namespace
}  // namespace longhaul::test
