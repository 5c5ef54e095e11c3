// Preparation, feed, scheduler, link and answers together, over a worker without a model.
#include "coordinator/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/file.h"
#include "coordinator/documents.h"
#include "coordinator/requests.h"
#include "tests/support/paths.h"
#include "tests/unit/coordinator/fake_worker.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
constexpr test::TokenRange kWords{260, 1000};

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : tokenizer_(Tokenizer::from_file(test::example_path("model/tokenizer.json"))),
        worker_(kWords) {
    replace_file(folder_.path() / "a.txt", "The first document is about a harbour.");
    replace_file(folder_.path() / "b.txt",
                 "The second document is longer: " + std::string(2000, 'x') + " and ends here.");
    preparation_ = {.defaults = {.params = {}, .max_tokens = 6},
                    .eos = {1},
                    .vocab_size = 1536,
                    .ctx_size = 4000,
                    .parse_special = false,
                    .n_threads = 1};
    config_.scheduler.chunk_len = 64;
  }

  void add(std::string_view id, std::string_view body) {
    const std::string line = fmt::format(
        R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{}}})", id, body);
    const ParsedRequests parsed = parse_requests(line, "r");
    ASSERT_TRUE(parsed.problems.empty()) << parsed.problems.front().message;
    requests_.push_back(parsed.requests.front());
  }

  // Serves until the engine is done; `n_steps` >= 0: the worker dies after so many.
  bool run(int n_steps = -1) {
    LinkPair link = make_in_memory_link();
    std::thread thread([&, end = std::move(link.worker)]() mutable {
      for (int i = 0; i != n_steps; ++i) {
        const auto command = end->next();
        if (!command) break;
        end->answer(worker_.step(*command));
      }
      end.reset();
    });
    struct Join {
      LinkPair& link;
      std::thread& thread;
      ~Join() {
        link.coordinator.reset();
        thread.join();
      }
    } join{link, thread};

    std::vector<std::size_t> all(requests_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    const CheckedDocuments checked = check_documents(requests_, folder_.path());
    EXPECT_TRUE(checked.problems.empty());
    const auto groups = group_by_documents(requests_, all, checked, folder_.path());
    GroupFeed feed(groups.size(), [&](std::size_t i, const auto& /*is_over*/) {
      return prepare(groups[i], requests_, tokenizer_, preparation_);
    });
    Progress progress({});
    EngineCallbacks callbacks;
    callbacks.on_done = [&](const PreparedRequest& prepared, const std::vector<Answer>& answers) {
      const Answer& answer = answers.front();
      EXPECT_TRUE(texts_.emplace(prepared.index, answer.text()).second);
      for (const Answer* kept : kept_answers(prepared, answers))
        choices_[prepared.index].push_back(kept->text());
      n_prompt_tokens_[prepared.index] = prepared.n_prompt_tokens;
      reasons_[prepared.index] = answer.finish_reason();
      generated_[prepared.index] = answer.n_generated();
      cached_[prepared.index] = prepared.n_cached_tokens;
    };
    callbacks.on_failed = [&](const FailedRequest& failure) {
      EXPECT_TRUE(failures_.emplace(failure.index, failure.code + ": " + failure.message).second);
    };
    callbacks.stop_requested = [&] { return texts_.size() >= stop_after_ || --n_looks_left_ < 0; };
    callbacks.on_note = [&](const std::string& text) { notes_.push_back(text); };
    callbacks.picked_before = [&](std::size_t request) { return unfinished_[request]; };
    callbacks.on_unfinished = [&](const std::vector<UnfinishedAnswer>& answers) {
      for (const UnfinishedAnswer& answer : answers) unfinished_[answer.request] = answer.tokens;
    };
    Engine engine(config_, tokenizer_, *link.coordinator, feed, progress, callbacks);
    return engine.run();
  }

  // The text after the tokens of `parts`, each tokenised by itself.
  std::string expected(const std::vector<std::string>& parts, int n_tokens) {
    std::vector<std::int32_t> ids = {0};
    for (const std::string& part : parts) {
      const auto more = tokenizer_.encode(part, {.add_special_tokens = false});
      ids.insert(ids.end(), more.begin(), more.end());
    }
    std::vector<std::int32_t> answer;
    for (int i = 0; i < n_tokens; ++i) {
      answer.push_back(test::token_after(ids, kWords));
      ids.push_back(answer.back());
    }
    return tokenizer_.decode(answer);
  }
  std::string document(std::string_view name) { return read_file(folder_.path() / name, 1 << 20); }

  test::TemporaryFolder folder_;
  Tokenizer tokenizer_;
  test::FakeWorker worker_;
  PreparationConfig preparation_;
  EngineConfig config_;
  std::vector<Request> requests_;
  std::map<std::size_t, std::string> texts_;
  std::map<std::size_t, std::string> reasons_;
  std::map<std::size_t, std::int64_t> cached_;
  std::map<std::size_t, std::int64_t> generated_;
  std::map<std::size_t, std::int64_t> n_prompt_tokens_;
  std::map<std::size_t, std::vector<std::string>> choices_;
  std::map<std::size_t, std::string> failures_;
  std::vector<std::string> notes_;
  std::map<std::size_t, std::vector<PickedToken>> unfinished_;  // of the last run that was stopped
  std::size_t stop_after_ = 1000000;
  int n_looks_left_ = 1000000;  // until a stop is requested
};

TEST_F(EngineTest, LeavesADocumentThatMayNotBeginAndAllAfterIt) {
  add("0", R"({"prompt":"Question one?","documents":[{"path":"a.txt"}]})");
  add("1", R"({"prompt":"Question two?","documents":[{"path":"b.txt"}]})");
  add("2", R"({"prompt":"Without a document"})");
  std::vector<std::int64_t> asked;
  config_.may_begin = [&](const std::vector<std::int64_t>& lengths) {
    asked.push_back(lengths.at(0));
    return asked.back() < 100;
  };
  EXPECT_FALSE(run());
  EXPECT_EQ(texts_.size(), 1U);
  EXPECT_TRUE(failures_.empty());
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_GT(asked[1], 100);
}

// They were read without a word, however many hours that took.
TEST_F(EngineTest, DocumentsThatAreNotWhereTheyWereExpectedAreNamed) {
  add("0", R"({"prompt":"Question one?","documents":[{"path":"a.txt"}]})");
  add("1", R"({"prompt":"Without a document"})");
  config_.find_starts = [](std::span<const std::int32_t>) { return std::vector<SavedStart>(); };
  EXPECT_TRUE(run());
  EXPECT_TRUE(notes_.empty());
  texts_.clear();
  config_.expected_in = "caches";
  EXPECT_TRUE(run());
  const auto n_tokens =
      1 + tokenizer_.encode(document("a.txt"), {.add_special_tokens = false}).size();
  EXPECT_THAT(notes_, testing::ElementsAre(fmt::format(
                          "document of {} tokens: nothing of it is in caches", n_tokens)));
}

TEST_F(EngineTest, AnswersOverDocumentsAndWithout) {
  add("0", R"({"prompt":"Question one?","documents":[{"path":"a.txt"}]})");
  add("1", R"({"prompt":"No document","max_tokens":3})");
  add("2", R"({"prompt":"Question two?","documents":[{"path":"a.txt"}]})");
  add("3", R"({"prompt":"Both","documents":[{"path":"a.txt"},{"path":"b.txt"}]})");
  EXPECT_TRUE(run());
  EXPECT_EQ(texts_[0], expected({document("a.txt"), "Question one?"}, 6));
  EXPECT_EQ(texts_[1], expected({"No document"}, 3));
  EXPECT_EQ(texts_[2], expected({document("a.txt"), "Question two?"}, 6));
  EXPECT_EQ(texts_[3], expected({document("a.txt"), document("b.txt"), "Both"}, 6));
  EXPECT_EQ(worker_.n_sequences(), 0U);
  EXPECT_EQ(cached_[0], 0);
  EXPECT_GT(cached_[2], 0);
}

TEST_F(EngineTest, AnEmptyPromptContinuesItsDocument) {
  add("0", R"({"prompt":"","documents":[{"path":"a.txt"}]})");
  add("1", R"({"prompt":"and?","documents":[{"path":"a.txt"}]})");
  EXPECT_TRUE(run());
  EXPECT_EQ(texts_[0], expected({document("a.txt")}, 6));
  EXPECT_EQ(texts_[1], expected({document("a.txt"), "and?"}, 6));
}

TEST_F(EngineTest, SpecialTokensInTextsAreText) {
  add("0", R"({"prompt":"</s><s>"})");
  EXPECT_TRUE(run());
  EXPECT_EQ(texts_[0], expected({"</s><s>"}, 6));
}

TEST_F(EngineTest, AnswersHaveTheFormsThatTheirRequestsGive) {
  add("0", R"({"prompt":"x","max_tokens":90,"guided_choice":["yes","no way","été"]})");
  add("1", R"({"prompt":"x","max_tokens":90,"guided_regex":"[0-9]{3}-[a-f]{2}","stop":["zz"]})");
  add("2", R"({"prompt":"x","max_tokens":900,"structured_outputs":{"json":{"type":"object",)"
           R"("properties":{"a":{"type":"integer","maximum":9,"minimum":0}},"required":["a"]}}})");
  add("3", R"({"prompt":"x"})");
  add("4", R"({"prompt":"x","max_tokens":3,"guided_regex":"Q{50}"})");
  add("5", R"({"prompt":"x","max_tokens":20,"guided_regex":"(?:ab)*"})");
  add("6", R"({"prompt":"x","max_tokens":90,"guided_choice":["yes","no way","été"]})");
  EXPECT_TRUE(run());
  EXPECT_TRUE(failures_.empty());
  EXPECT_THAT(texts_[0], testing::AnyOf("yes", "no way", "été"));
  EXPECT_EQ(texts_[6], texts_[0]);
  EXPECT_THAT(texts_[1], testing::ContainsRegex("^[0-9]{3}-[a-f]{2}$"));
  EXPECT_EQ(std::get<JsonObject>(parse_json(texts_[2], "answer").value()).size(), 1U);
  EXPECT_EQ(texts_[3], expected({"x"}, 6));  // as without others' forms
  for (const std::size_t i : {0, 1, 2, 6}) EXPECT_EQ(reasons_[i], "stop") << i;
  EXPECT_EQ(reasons_[4], "length");
  EXPECT_THAT(texts_[4], testing::MatchesRegex("Q+"));
  EXPECT_THAT(texts_[5], testing::MatchesRegex("(ab)*a?"));
}

TEST_F(EngineTest, SeveralPromptsAndAnswersAreOneRequest) {
  add("0", R"({"prompt":["one","two",""],"n":2,"documents":[{"path":"a.txt"}]})");
  add("1", R"({"prompt":["Alone","w"],"n":3,"max_tokens":2})");
  add("2", R"({"prompt":[[300,301],[302]]})");
  add("3", R"({"prompt":"Best","n":1,"best_of":3})");
  add("4", R"({"prompt":"Scored","n":2,"echo":true,"logprobs":0})");
  EXPECT_TRUE(run());
  EXPECT_TRUE(failures_.empty());
  const std::string a = document("a.txt");
  const std::string one = expected({a, "one"}, 6);
  const std::string two = expected({a, "two"}, 6);
  const std::string none = expected({a}, 6);
  EXPECT_THAT(choices_[0], testing::ElementsAre(one, one, two, two, none, none));
  const std::string alone = expected({"Alone"}, 2);
  const std::string w = expected({"w"}, 2);
  EXPECT_THAT(choices_[1], testing::ElementsAre(alone, alone, alone, w, w, w));
  EXPECT_EQ(choices_[2].size(), 2U);
  EXPECT_THAT(choices_[3], testing::ElementsAre(expected({"Best"}, 6)));
  const std::string scored = "Scored" + expected({"Scored"}, 6);
  EXPECT_THAT(choices_[4], testing::ElementsAre(scored, scored));
  EXPECT_EQ(n_prompt_tokens_[2], 3);
  const auto n_document = static_cast<std::int64_t>(
      tokenizer_.encode(a, {.add_special_tokens = false}).size());  // and <s>, less the last token
  EXPECT_EQ(cached_[0], 2 * n_document);
  EXPECT_EQ(worker_.n_sequences(), 0U);
}

// Each answer has a seed of its own, the request's and those after it.
TEST_F(EngineTest, AnswersToOnePromptHaveTheSeedsAfterTheRequests) {
  add("0", R"({"prompt":"x y z","n":3,"seed":40,"temperature":1})");
  add("1", R"({"prompt":"x y z","n":2,"temperature":1})");
  EXPECT_TRUE(run());
  std::vector<std::uint64_t> seeds;
  for (const ForkSequence& fork : worker_.forked()) seeds.push_back(fork.sampling.seed);
  ASSERT_EQ(seeds.size(), 5U);
  std::sort(seeds.begin(), seeds.end());
  EXPECT_THAT(std::span(seeds).first(3), testing::ElementsAre(40U, 41U, 42U));
  EXPECT_EQ(seeds[4], seeds[3] + 1);
}

TEST_F(EngineTest, AnAnswerThatFailsIsItsRequestsFailure) {
  add("0", R"({"prompt":"one two three","n":4})");
  add("1", R"({"prompt":"fine"})");
  bool failed = false;
  worker_.fails = [&](const StepCommand& command) {
    const auto* fork = std::get_if<ForkSequence>(&command);
    return fork != nullptr && !std::exchange(failed, true);
  };
  EXPECT_TRUE(run());
  EXPECT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0], "out_of_memory: made to fail");
  EXPECT_EQ(texts_[1], expected({"fine"}, 6));
  EXPECT_EQ(worker_.n_sequences(), 0U);
}

TEST_F(EngineTest, MinTokensKeepEndsAway) {
  Ids prompt = tokenizer_.encode("word", {.add_special_tokens = false});
  prompt.insert(prompt.begin(), 0);
  const std::int32_t first = test::token_after(prompt, kWords);
  add("0", fmt::format(R"({{"prompt":"word","stop_token_ids":[{}]}})", first));
  add("1", fmt::format(R"({{"prompt":"word","stop_token_ids":[{}],"min_tokens":4}})", first));
  add("2", R"({"prompt":"word","min_tokens":7})");
  add("3", R"({"prompt":"word","min_tokens":5,"guided_choice":["yes"]})");
  const std::string stop = tokenizer_.decode(Ids{first});
  add("4", fmt::format(R"({{"prompt":"word","stop":["{}"],"min_tokens":4}})", stop));
  EXPECT_TRUE(run());
  EXPECT_EQ(generated_[0], 1);
  EXPECT_GE(generated_[1], 4);
  EXPECT_THAT(failures_[2], HasSubstr("invalid_argument: min_tokens is 7, more than the 6"));
  EXPECT_EQ(texts_[3], "yes");  // a form that is complete ends
  EXPECT_EQ(reasons_[3], "stop");
  EXPECT_GE(generated_[4], 4);
}

TEST_F(EngineTest, StopTokensEndAFormWhereItMayEnd) {
  const std::int32_t q = tokenizer_.encode("q", {.add_special_tokens = false}).back();
  add("0", R"({"prompt":"x","max_tokens":500,"ignore_eos":true,"guided_regex":"q{3,}"})");
  add("1", R"({"prompt":"x","max_tokens":500,"ignore_eos":true,"guided_regex":"q{3,}",)"
           R"("stop_token_ids":[0]})");
  add("2", fmt::format(R"({{"prompt":"x","max_tokens":9,"guided_regex":"q{{3}}",)"
                       R"("stop_token_ids":[{}]}})",
                       q));
  EXPECT_TRUE(run());
  EXPECT_EQ(reasons_[0], "length");
  EXPECT_EQ(reasons_[1], "stop");
  EXPECT_THAT(texts_[1], testing::MatchesRegex("qqq+"));
  EXPECT_EQ(reasons_[2], "stop");  // where its text is picked, it ends the answer, as in vLLM
  EXPECT_EQ(texts_[2], "");
}

TEST_F(EngineTest, RulesForLogitsKnowDocumentAndPrompt) {
  add("0", R"({"prompt":"Question?","documents":[{"path":"a.txt"}],"repetition_penalty":1.2,)"
           R"("logit_bias":{"1535":-100}})");
  add("1", R"({"prompt":"Question?","documents":[{"path":"a.txt"}],"presence_penalty":1})");
  add("2", R"({"prompt":"Question?","documents":[{"path":"a.txt"}]})");
  add("3", R"({"prompt":"x","logit_bias":{"1536":1}})");
  EXPECT_TRUE(run());
  EXPECT_THAT(failures_[3],
              HasSubstr("logit_bias names token id 1536; the model's ids end at 1535"));
  ASSERT_EQ(worker_.forked().size(), 3U);  // in the order of the requests
  const auto& forked = worker_.forked();
  ASSERT_NE(forked[0].rules, nullptr);
  IdSet want(1536);
  want.insert(0);  // <s>
  for (const std::string& part : {document("a.txt"), std::string("Question?")}) {
    for (const std::int32_t id : tokenizer_.encode(part, {.add_special_tokens = false}))
      want.insert(id);
  }
  EXPECT_EQ(*forked[0].rules,
            (LogitRules{.bias = {{1535, -100}}, .repetition_penalty = 1.2, .prompt_tokens = want}));
  EXPECT_EQ(*forked[1].rules, (LogitRules{.presence_penalty = 1}));
  EXPECT_EQ(forked[2].rules, nullptr);
}

TEST_F(EngineTest, NamesWhatCannotBeDone) {
  add("0", R"({"prompt":"x","max_tokens":5000})");
  add("1", R"({"prompt":[5000]})");
  add("2", R"({"prompt":"fine"})");
  EXPECT_TRUE(run());
  EXPECT_THAT(failures_[0], HasSubstr("context_length_exceeded: needs 5002 tokens"));
  EXPECT_THAT(failures_[1], HasSubstr("invalid_argument: the prompt holds token id 5000"));
  EXPECT_EQ(texts_.size(), 1U);
}

TEST_F(EngineTest, AFailedStepIsARequestsError) {
  add("0", R"({"prompt":"one"})");
  add("1", R"({"prompt":"two","documents":[{"path":"b.txt"}]})");
  worker_.fails = [](const StepCommand& command) {
    const auto* prefill = std::get_if<PrefillChunk>(&command);
    return prefill != nullptr && prefill->tokens.size() == 64;  // a chunk of the document
  };
  EXPECT_TRUE(run());
  EXPECT_EQ(texts_.size(), 1U);
  EXPECT_EQ(failures_[1], "out_of_memory: made to fail");
}

TEST_F(EngineTest, StopsWhenAsked) {
  for (int i = 0; i < 20; ++i) add(std::to_string(i), R"({"prompt":"word"})");
  config_.scheduler.max_sequences = 2;
  stop_after_ = 2;
  EXPECT_FALSE(run());
  EXPECT_GE(texts_.size(), 2U);
  EXPECT_LT(texts_.size(), 20U);
}

TEST_F(EngineTest, AnswersGoOnBehindWhatAStoppedRunPicked) {
  add("0", R"({"prompt":"One","max_tokens":300,"repetition_penalty":1.1})");
  add("1", R"({"prompt":"Two","max_tokens":200,"documents":[{"path":"a.txt"}]})");
  add("2", R"({"prompt":"Three","max_tokens":100,"presence_penalty":1})");
  std::size_t n_before = 0;
  for (int round = 0; round < 4; ++round) {
    n_looks_left_ = 40;
    worker_ = test::FakeWorker(kWords);
    EXPECT_FALSE(run());
    EXPECT_GT(unfinished_[0].size(), n_before + 20);
    n_before = unfinished_[0].size();
  }
  EXPECT_TRUE(unfinished_[2].empty());  // how often its tokens were picked counts: it starts over
  n_looks_left_ = 1000000;
  worker_ = test::FakeWorker(kWords);
  EXPECT_TRUE(run());
  EXPECT_EQ(texts_[0], expected({"One"}, 300));
  EXPECT_EQ(texts_[1], expected({document("a.txt"), "Two"}, 200));
  EXPECT_EQ(texts_[2], expected({"Three"}, 100));
  EXPECT_EQ(generated_[0], 300);
  EXPECT_EQ(reasons_[0], "length");
}

// It was once answered under the old text's hash.
TEST_F(EngineTest, ADocumentThatChangesBeforeItIsReadIsAnErrorOfItsRequests) {
  add("a", R"({"prompt":"What?","documents":[{"path":"a.txt"}]})");
  add("b", R"({"prompt":"What?","documents":[{"path":"b.txt"}]})");
  const CheckedDocuments checked = check_documents(requests_, folder_.path());
  const auto groups = group_by_documents(requests_, {0, 1}, checked, folder_.path());
  replace_file(folder_.path() / "a.txt", "Another text.");
  const PreparedGroup changed = prepare(groups[0], requests_, tokenizer_, preparation_);
  EXPECT_TRUE(changed.requests.empty());
  ASSERT_EQ(changed.failures.size(), 1U);
  EXPECT_EQ(changed.failures[0].code, "document_changed");
  EXPECT_THAT(changed.failures[0].message, HasSubstr("a.txt changed after the run began"));
  EXPECT_EQ(prepare(groups[1], requests_, tokenizer_, preparation_).requests.size(), 1U);
}

// 40 GB were once tokenised for a context of a million tokens.
TEST_F(EngineTest, AnEndlessDocumentIsNotTokenisedFurtherThanTheContextReaches) {
  std::string text;
  while (text.size() < std::size_t{24} << 20) text += "The harbour is closed for the winter. ";
  replace_file(folder_.path() / "a.txt", text);
  add("a", R"({"prompt":"What?","documents":[{"path":"a.txt"}]})");
  const CheckedDocuments checked = check_documents(requests_, folder_.path());
  const auto groups = group_by_documents(requests_, {0}, checked, folder_.path());
  int n_looks = 0;
  preparation_.texts.stop_requested = [&] { return ++n_looks > 20; };
  const PreparedGroup refused = prepare(groups[0], requests_, tokenizer_, preparation_);
  ASSERT_EQ(refused.failures.size(), 1U);
  EXPECT_EQ(refused.failures[0].code, "context_length_exceeded");
  EXPECT_LE(n_looks, 8);  // of the parts of one MiB the first was enough
  preparation_.texts.stop_requested = [] { return true; };
  EXPECT_THROW(prepare(groups[0], requests_, tokenizer_, preparation_), Error);
}

TEST_F(EngineTest, TwoReplicasShareTheWorkAndAnswerAlike) {
  for (int i = 0; i < 12; ++i) {
    const std::string name = "doc" + std::to_string(i) + ".txt";
    replace_file(folder_.path() / name, "Document " + std::to_string(i) + std::string(300, 'y'));
    add(std::to_string(i), R"({"prompt":"What?","documents":[{"path":")" + name + R"("}]})");
  }
  EXPECT_TRUE(run());
  const auto alone = std::exchange(texts_, {});

  const std::vector<std::size_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const CheckedDocuments checked = check_documents(requests_, folder_.path());
  const auto groups = group_by_documents(requests_, all, checked, folder_.path());
  GroupFeed feed(groups.size(), [&](std::size_t i, const auto& /*is_over*/) {
    return prepare(groups[i], requests_, tokenizer_, preparation_);
  });
  Progress progress({.group_bytes = std::vector<std::size_t>(12, 310), .n_requests = 12});
  progress.set_lanes(2);
  std::mutex mutex;  // guards texts_
  std::array<int, 2> n_done{};
  const auto run_replica = [&](std::size_t lane) {
    test::FakeWorker fake(kWords);
    LinkPair link = make_in_memory_link();
    std::jthread worker([&fake, end = std::move(link.worker)]() mutable {
      while (const auto command = end->next()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that neither does it all
        end->answer(fake.step(*command));
      }
    });
    EngineConfig config = config_;
    config.lane = lane;
    config.max_unread = 2;
    EngineCallbacks callbacks;
    callbacks.on_done = [&](const PreparedRequest& prepared, const std::vector<Answer>& answers) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(texts_.emplace(prepared.index, answers.front().text()).second);
      ++n_done[lane];
    };
    callbacks.on_failed = [](const FailedRequest& failure) { ADD_FAILURE() << failure.message; };
    callbacks.stop_requested = [] { return false; };
    Engine engine(config, tokenizer_, *link.coordinator, feed, progress, callbacks);
    EXPECT_TRUE(engine.run());
    link.coordinator.reset();
  };
  {
    std::jthread first(run_replica, 0);
    std::jthread second(run_replica, 1);
  }
  EXPECT_EQ(texts_, alone);
  EXPECT_GT(n_done[0], 0);
  EXPECT_GT(n_done[1], 0);
  EXPECT_THAT(progress.line(), HasSubstr("documents 12/12  requests 12/12"));
}

TEST_F(EngineTest, ALostWorkerIsAnError) {
  for (int i = 0; i < 20; ++i) add(std::to_string(i), R"({"prompt":"word"})");
  try {
    run(25);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
  }
}

}  // namespace
}  // namespace longhaul
