// The engine on two trained models, from text to text: the published greedy text of stories260K,
// and the needle model's answers and first logits under dense, duo and all-streaming attention,
// with every instruction set of this machine. Both models lie beside the checkout; the tests skip
// where they are missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/prompt_lookup.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/threads.h"
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/golden/engine.h"
#include "tests/golden/golden_models.h"
#include "tests/golden/published_text.h"
#include "tests/support/paths.h"
#include "worker/worker.h"

namespace longhaul::test {
namespace {

constexpr SequenceId kSequence{1};

StepDone done(Worker& worker, const StepCommand& command) {
  StepResult result = worker.step(command);
  if (const auto* failed = std::get_if<StepFailed>(&result)) {
    throw Error(failed->code, failed->message);
  }
  return std::get<StepDone>(std::move(result));
}

struct GreedyArgs {
  std::filesystem::path model;
  std::optional<HeadRoles> roles;
  KvType kv_type = KvType::kF32;
  std::vector<std::int32_t> prompt;
  std::int64_t chunk_len = 0;
  std::int64_t n_tokens = 0;   // at most; an end-of-text token ends it before
  std::int64_t draft_max = 0;  // guesses of a step
};

std::optional<HeadTable> heads_of(const ModelSpec& spec, const std::optional<HeadRoles>& roles) {
  if (!roles) return std::nullopt;
  return duo_attention_heads(spec, *roles);
}

// What the worker answers to a prompt, through the commands that the coordinator sends.
std::vector<std::int32_t> greedy(const GreedyArgs& args) {
  const ModelFolder folder(args.model);
  const std::vector<std::int32_t>& eos = folder.config().eos_token_ids;
  Worker worker({.weights = std::make_shared<const Weights>(Weights::load(folder)),
                 .heads = heads_of(folder.config().spec, args.roles),
                 .k_type = args.kv_type,
                 .v_type = args.kv_type,
                 .cache_limit_bytes = std::nullopt,
                 .n_threads = 1});
  done(worker, OpenSequence{.sequence = kSequence, .sampling = {}});
  StepDone step;
  for (auto left = std::span(args.prompt); !left.empty();) {
    const auto chunk = left.first(std::min(left.size(), static_cast<std::size_t>(args.chunk_len)));
    left = left.subspan(chunk.size());
    step = done(worker, PrefillChunk{.sequence = kSequence,
                                     .tokens = {chunk.begin(), chunk.end()},
                                     .after = left.empty() ? AfterPrefill::kSample
                                                           : AfterPrefill::kNothing});
  }
  std::vector<std::int32_t> ids;
  PromptLookup lookup({.most = args.draft_max, .least = 2}, nullptr, args.prompt);
  DecodeBatch::Row row{.sequence = kSequence, .token = 0};
  while (true) {
    for (const PickedToken& picked : step.picked) {
      row.token = picked.token;
      if (std::find(eos.begin(), eos.end(), row.token) != eos.end()) return ids;
      ids.push_back(row.token);
      if (static_cast<std::int64_t>(ids.size()) == args.n_tokens) return ids;
      lookup.add({&row.token, 1});
    }
    row.guesses = lookup.guess(args.draft_max);
    const auto n_guesses = static_cast<std::int64_t>(row.guesses.size());
    step = done(worker, DecodeBatch{.rows = {row}});
    const std::int64_t n_true = std::ssize(step.picked) - 1;
    lookup.learn(n_guesses, n_true);
    row.n_wrong = n_guesses - n_true;
  }
}

class WorkerText : public testing::TestWithParam<Isa> {
 protected:
  // One thread: steps of models so small are shorter than the wait for a second thread.
  void SetUp() override {
    set_active_isa(GetParam());
    set_kernel_threads(1);
  }
  void TearDown() override {
    set_active_isa(before_);
    set_kernel_threads(0);
  }

  void expect_needle_answers(const HeadRoles& roles,
                             NeedleQuestion::Answer NeedleQuestion::*answer) {
    const std::filesystem::path model = shared_path("models/needle");
    const ModelFolder folder(model);
    const Tokenizer tokenizer = Tokenizer::from_file(folder.tokenizer_path());
    for (const NeedleQuestion& question : read_needle_questions(model / "reference.json")) {
      const NeedleQuestion::Answer& want = question.*answer;
      const std::vector<std::int32_t> prompt = tokenizer.encode(question.prompt);
      EXPECT_EQ(prompt, question.ids);
      const std::vector<std::int32_t> ids =
          greedy({.model = model,
                  .roles = roles,
                  .prompt = prompt,
                  .chunk_len = 500,
                  .n_tokens = folder.generation().max_new_tokens.value()});
      EXPECT_EQ(tokenizer.decode(ids), want.text) << "asked for " << question.expected;
      // And so it goes on, far beyond an answer, whatever is guessed.
      const auto far = [&](std::int64_t draft_max) {
        return greedy({.model = model,
                       .roles = roles,
                       .prompt = prompt,
                       .chunk_len = 500,
                       .n_tokens = 40,
                       .draft_max = draft_max});
      };
      EXPECT_EQ(far(12), far(0));

      const Logits logits = Engine(model, roles).append(prompt, /*chunk_len=*/333);
      const std::span<const double> last = logits.row(logits.n_tokens - 1);
      for (std::size_t i = 0; i < want.top_ids.size(); ++i) {
        EXPECT_NEAR(last[static_cast<std::size_t>(want.top_ids[i])], want.top_logits[i], 1e-3)
            << "logit " << i << " of the question for " << question.expected;
      }
    }
  }

  Isa before_ = active_isa();
};

TEST_P(WorkerText, StoriesContinueAsPublished) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/stories260K");
  const std::filesystem::path model = shared_path("models/stories260K");
  const ModelFolder folder(model);
  const Tokenizer tokenizer = Tokenizer::from_file(folder.tokenizer_path());
  const std::vector<std::int32_t> prompt = tokenizer.encode("");  // BOS alone
  EXPECT_EQ(prompt, std::vector<std::int32_t>{folder.config().bos_token_id.value()});
  for (const KvType type : {KvType::kF32, KvType::kBf16}) {
    const std::vector<std::int32_t> ids = greedy({.model = model,
                                                  .roles = std::nullopt,
                                                  .kv_type = type,
                                                  .prompt = prompt,
                                                  .chunk_len = 1,
                                                  .n_tokens = kStoriesTokens});
    EXPECT_EQ(tokenizer.decode(ids), kStoriesText) << name_of(type);
    const std::vector<std::int32_t> guessed = greedy({.model = model,
                                                      .roles = std::nullopt,
                                                      .kv_type = type,
                                                      .prompt = prompt,
                                                      .chunk_len = 1,
                                                      .n_tokens = kStoriesTokens,
                                                      .draft_max = 8});
    EXPECT_EQ(guessed, ids) << name_of(type);
  }
}

TEST_P(WorkerText, NeedleDense) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/needle");
  const HeadProfile heads = read_head_profile(shared_path("models/needle/profile"));
  expect_needle_answers(HeadRoles::all_retrieval(heads.n_layers, heads.n_kv_heads),
                        &NeedleQuestion::dense);
}

TEST_P(WorkerText, NeedleDuo) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/needle");
  const HeadProfile heads = read_head_profile(shared_path("models/needle/profile"));
  expect_needle_answers(choose_roles(heads, std::nullopt), &NeedleQuestion::duo);
}

TEST_P(WorkerText, NeedleAllStreaming) {
  LONGHAUL_SKIP_UNLESS_SHARED("models/needle");
  const HeadProfile heads = read_head_profile(shared_path("models/needle/profile"));
  expect_needle_answers(choose_roles(heads, 0.0), &NeedleQuestion::streaming);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, WorkerText, testing::ValuesIn(supported_isas()),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace longhaul::test
