// A trained model on a GPU: the needle model's answers, token by token, are the CPU's, with every
// type of cache and with its heads' roles, and they are right.
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/gpu/worker_plays.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

constexpr SequenceId kDocument{1};
constexpr SequenceId kFirst{2};
constexpr SequenceId kSecond{3};
constexpr int kAnswerTokens = 7;

// Two needles in text that is longer than the streaming heads' window.
constexpr std::string_view kText =
    " The access code of maroon phoenix is 907483. Supper was late. The night watch counted the "
    "barometer readings at the upper quarry. There were 690 sheets under the signal mast, and her "
    "brother repaired them in the first frost. This had happened once before. On the flood meadow, "
    "the surveyor carried away the weather report again. At the end of the shift, the cook argued "
    "about the ledger of the harbour. Shortly after noon, the doctor counted the map of the "
    "shallows. The access code of rapid lion is 378876. Nobody could explain why. Two pilots asked "
    "about three letters from the mainland on the landing stage. On the landing stage, the cook "
    "counted the map of the shallows again. Supper was late. On a Sunday, the surveyor measured a "
    "crate of lamp oil. After the storm, the surveyor asked about the ferry timetable. Shortly "
    "after noon, the cook repaired the barometer readings. Her brother sent for the spare keys by "
    "the north road. Near the salt works, the keeper wrote down the ferry timetable again. There "
    "were 80 sheets under the signal mast, and the clerk looked for them in the first frost. In "
    "the first frost, the night watch argued about the map of the shallows.";

struct Question {
  std::string_view text;
  std::string_view answer;
};
constexpr Question kQuestions[] = {
    {"\nQuestion: What is the access code of maroon phoenix?\nAnswer:", "907483"},
    {"\nQuestion: What is the access code of rapid lion?\nAnswer:", "378876"}};

class NeedleOnGpu : public OnGpu, public testing::WithParamInterface<KvType> {
 protected:
  const ModelFolder folder_{example_path("model")};
  const Tokenizer tokenizer_ = Tokenizer::from_file(folder_.tokenizer_path());

  // Both questions as forks of the document, decoded together. `answers` gets their texts.
  Play ask(std::vector<std::string>& answers) {
    return [&](Player& player) {
      player.open(kDocument);
      player.prefill(kDocument, tokenizer_.encode(kText), 128);
      std::vector<std::int32_t> first;
      for (const SequenceId id : {kFirst, kSecond}) {
        player.step(ForkSequence{.parent = kDocument, .child = id, .sampling = {}});
        const Question& question = kQuestions[id == kFirst ? 0 : 1];
        first.push_back(player.prefill(
            id, tokenizer_.encode(question.text, {.add_special_tokens = false}), 128));
      }
      player.decode({kFirst, kSecond}, first, kAnswerTokens - 1);
      answers.clear();
      for (const SequenceId id : {kFirst, kSecond}) {
        std::vector<std::int32_t> tokens;
        for (const PickedToken& picked : player.seen().picked) {
          if (picked.sequence == id) tokens.push_back(picked.token);
        }
        answers.push_back(tokenizer_.decode(tokens));
      }
    };
  }
};

TEST_P(NeedleOnGpu, AnswersAreTheCpusAndRight) {
  const HeadProfile profile = read_head_profile(example_path("profile"));
  const ModelSpec& spec = folder_.config().spec;
  for (const HeadRoles& roles : {HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads),
                                 choose_roles(profile, std::nullopt)}) {
    const auto make = [&](const DeviceId& device) -> WorkerConfig {
      return {
          .weights = std::make_shared<const Weights>(Weights::load(folder_, std::nullopt, device)),
          .device = device,
          .heads = duo_attention_heads(spec, roles),
          .k_type = GetParam(),
          .v_type = GetParam(),
          .n_threads = 1};
    };
    std::vector<std::string> answers;
    // Tokens only: no log-probabilities are asked for.
    expect_the_cpus_answers(make, ask(answers), 0.0);
    ASSERT_EQ(answers.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NE(answers[i].find(kQuestions[i].answer), std::string::npos)
          << answers[i] << " with " << roles.n_retrieval() << " retrieval heads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, NeedleOnGpu, testing::ValuesIn(kPlainKvTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace longhaul::test
