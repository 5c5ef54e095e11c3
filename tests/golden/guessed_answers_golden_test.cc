// Answers with guesses, by prompt lookup or by a draft model, are those without, on every model at
// hand: golden, demo and, where they lie beside the checkout, trained ones; on one rank and on a
// ring of three; three questions at a time, which are forks of one document, with streaming heads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "cluster/comm/in_process.h"
#include "cluster/wire/group_link.h"
#include "coordinator/draft_model.h"
#include "coordinator/scheduler.h"
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/golden/golden_models.h"
#include "tests/multirank/ring_cases.h"
#include "tests/support/paths.h"
#include "tests/support/tolerance.h"

namespace longhaul::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kAnswer = 48;  // tokens

struct Questions {
  std::string name;
  std::filesystem::path model;
  std::optional<std::filesystem::path> profile;  // none: mixed_roles
  Ids document;
  std::vector<Ids> prompts;
};

// What repeats itself is quoted: the document is the golden text twice, questions are parts of it.
Questions golden_questions(const std::string& name) {
  const GoldenModel golden = read_golden_model(name);
  Questions questions{.name = name,
                      .model = golden.folder,
                      .profile = {},
                      .document = golden.tokens,
                      .prompts = {}};
  questions.document.insert(questions.document.end(), golden.tokens.begin(), golden.tokens.end());
  for (const std::ptrdiff_t at : {0, 7, 19}) {
    questions.prompts.emplace_back(golden.tokens.begin() + at, golden.tokens.begin() + at + 9);
  }
  return questions;
}

Questions text_questions(const std::string& name, const std::filesystem::path& model,
                         std::optional<std::filesystem::path> profile, const std::string& document,
                         const std::vector<std::string>& prompts) {
  const Tokenizer tokenizer = Tokenizer::from_file(ModelFolder(model).tokenizer_path());
  Questions questions{.name = name,
                      .model = model,
                      .profile = std::move(profile),
                      .document = tokenizer.encode(document),
                      .prompts = {}};
  for (const std::string& prompt : prompts)
    questions.prompts.push_back(tokenizer.encode(prompt, {.add_special_tokens = false}));
  return questions;
}

std::vector<Questions> all_questions() {
  std::vector<Questions> all;
  for (const std::string& name : golden_model_names()) all.push_back(golden_questions(name));
  const std::string log =
      read_file(example_path("documents/harbour_log.txt"), 1 << 20).substr(0, 3000);
  std::vector<std::string> codes;
  for (const char* whose : {"maroon phoenix", "rapid lion", "noble rabbit"})
    codes.push_back("\nQuestion: What is the access code of " + std::string(whose) + "?\nAnswer:");
  all.push_back(text_questions("demo", example_path("model"), example_path("profile"), log, codes));
  if (std::filesystem::exists(shared_path("models/needle"))) {
    all.push_back(text_questions("needle", shared_path("models/needle"),
                                 shared_path("models/needle/profile"), log, codes));
  }
  if (std::filesystem::exists(shared_path("models/stories260K"))) {
    all.push_back(text_questions(
        "stories260K", shared_path("models/stories260K"), {},
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "park. One day, she saw a big, red ball.",
        {" She loved to", " One day,", " Once upon a time,"}));
  }
  return all;
}

struct Model {
  std::shared_ptr<const Weights> weights;
  HeadTable heads;
  KvFormat kv;
};

DType matrix_type(const Weights& weights) { return weights.layer(LayerId{0}).q.dtype; }

Model open_model(const Questions& questions) {
  const ModelFolder folder(questions.model);
  const ModelSpec& spec = folder.config().spec;
  auto weights = std::make_shared<const Weights>(Weights::load(folder));
  const HeadRoles roles = questions.profile
                              ? choose_roles(read_head_profile(*questions.profile), std::nullopt)
                              : mixed_roles(spec);
  const KvType type = natural_kv_type(matrix_type(*weights));
  return {.weights = std::move(weights),
          .heads = duo_attention_heads(spec, roles),
          .kv = {type, type, /*block_size=*/32, spec.head_dim}};
}

// Whether sums have one order on any ranks and in any batches.
enum class Bits { kAny, kSame };

// So many ranks as threads, behind one link. One rank runs alone, more are a ring with uneven
// shares of the tokens.
class Replica {
 public:
  Replica(const Model& model, int n_ranks, Bits bits = Bits::kAny)
      : vocab_size_(model.weights->spec().vocab_size) {
    std::vector<GroupLink::Member> members;
    for (std::int64_t r = 0; r < n_ranks; ++r) {
      LinkPair ends = make_in_memory_link();
      members.push_back(
          {.name = {.rank = Rank{r}, .host = {}}, .link = std::move(ends.coordinator)});
      workers_.push_back(std::move(ends.worker));
    }
    link_ = std::make_unique<GroupLink>(std::move(members));
    WorkerConfig config{.weights = model.weights,
                        .k_type = model.kv.k_type,
                        .v_type = model.kv.v_type,
                        .n_threads = 1};
    if (n_ranks == 1) {
      config.heads = model.heads;
      config.block_size = model.kv.block_size;
      config.reproducible = bits == Bits::kSame;
      ranks_ = std::jthread([this, config] { Worker(config).serve(*workers_.front()); });
      return;
    }
    Random random(3);
    const auto plan = std::make_shared<const Plan>(
        random_plan(random, model.weights->spec(), model.heads, n_ranks, /*n_stages=*/1, model.kv,
                    /*ffn_unit=*/1, bits == Bits::kSame));
    const auto cluster = std::make_shared<const ClusterSpec>(equal_cluster(n_ranks, 1 << 30));
    ranks_ = std::jthread([this, config, plan, cluster, n_ranks] {
      run_in_process(n_ranks, [&](Communicator& comm) {
        WorkerConfig own = config;
        own.place = RingPlace{.plan = plan, .cluster = cluster, .comm = &comm};
        Worker(own).serve(*workers_[static_cast<std::size_t>(comm.rank())]);
      });
    });
  }
  ~Replica() { link_->send(Shutdown{}); }
  Link& link() { return *link_; }
  std::int64_t vocab_size() const { return vocab_size_; }

 private:
  std::int64_t vocab_size_;
  std::vector<std::unique_ptr<WorkerLink>> workers_;
  std::unique_ptr<GroupLink> link_;
  std::jthread ranks_;
};

struct Guessing {
  std::int64_t draft_max = 0;
  std::int64_t least = 2;    // tokens that lookup must find
  Replica* draft = nullptr;  // a draft model's
  std::int64_t draft_context = 0;
  double temperature = 0;
};

struct Answers {
  std::map<std::int64_t, std::vector<PickedToken>> of_request;
  std::int64_t n_guesses = 0;
  std::int64_t n_true = 0;
};

Answers answer(const Questions& questions, Replica& replica, const Guessing& guessing) {
  Scheduler scheduler({.chunk_len = 512,
                       .max_sequences = 8,
                       .budget = {},
                       .lookup = {.most = guessing.draft_max, .least = guessing.least},
                       .draft_context = guessing.draft_context});
  std::optional<DraftModel> draft;
  if (guessing.draft != nullptr)
    draft.emplace(DraftConfig{.chunk_len = 100, .vocab_size = guessing.draft->vocab_size()},
                  guessing.draft->link());
  const Deadline deadline = deadline_in(std::chrono::minutes(1));
  JobGroup group{.document = questions.document, .jobs = {}};
  for (std::size_t i = 0; i < questions.prompts.size(); ++i) {
    group.jobs.push_back(
        {.request = RequestId{static_cast<std::int64_t>(i)},
         .prompt = questions.prompts[i],
         .sampling = {.temperature = guessing.temperature, .seed = 7 + i, .n_logprobs = 2},
         .max_tokens = kAnswer});
  }
  EXPECT_TRUE(scheduler.add(std::move(group)).empty());
  Answers answers;
  while (!scheduler.idle()) {
    while (auto command = scheduler.next()) {
      if (auto* batch = std::get_if<DecodeBatch>(&*command)) {
        if (draft) {
          const std::vector<DraftWish> wishes = scheduler.draft_wishes();
          scheduler.add_guesses(wishes, draft->guess(wishes, deadline), *batch);
        }
        for (const DecodeBatch::Row& row : batch->rows) {
          answers.n_guesses += std::ssize(row.guesses);
          answers.n_true -= 1;  // of what is picked, which is no guess
        }
      }
      const auto* drop = std::get_if<DropSequences>(&*command);
      if (draft && drop != nullptr) draft->forget(drop->sequences);
      replica.link().send(std::move(*command));
    }
    StepResult result = replica.link().receive(deadline);
    if (const auto* failed = std::get_if<StepFailed>(&result))
      throw Error(failed->code, failed->message);
    for (SchedulerEvent& event : scheduler.consume(std::move(result))) {
      auto& added = std::get<TokenAdded>(event);
      auto& tokens = answers.of_request[added.request.value];
      tokens.push_back(std::move(added.token));
      answers.n_true += tokens.size() > 1 ? 1 : 0;  // the first one is the prompt's
      if (std::ssize(tokens) == kAnswer) scheduler.finish(added.request);
    }
  }
  return answers;
}

// Tokens that are equal: all of them, or those before one for which two tokens were as likely, as
// far as logits tell that are computed in two ways. -1 when others differ.
std::int64_t count_equal(const std::vector<PickedToken>& want, const std::vector<PickedToken>& got,
                         double tolerance) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool is_tie = want[i].top.at(0).logprob - want[i].top.at(1).logprob < tolerance;
    if (want[i].token == got.at(i).token) continue;
    return is_tie ? static_cast<std::int64_t>(i) : -1;
  }
  return static_cast<std::int64_t>(want.size());
}

double tolerance_of(const Model& model) {
  return logits_tolerance(matrix_type(*model.weights)).absolute;
}

// Returns how many tokens are equal.
std::int64_t expect_equal(const Answers& want, const Answers& got, double tolerance) {
  std::int64_t n_equal = 0;
  EXPECT_EQ(got.of_request.size(), want.of_request.size());
  for (const auto& [request, tokens] : want.of_request) {
    const std::int64_t n = count_equal(tokens, got.of_request.at(request), tolerance);
    EXPECT_GE(n, 0) << "question " << request;
    n_equal += n;
  }
  return n_equal;
}

TEST(GuessedAnswers, AreThoseWithoutGuessesOnEveryModelAndOnOneAndThreeRanks) {
  std::int64_t n_tokens = 0;
  std::int64_t n_equal = 0;
  std::int64_t n_true = 0;
  for (const Questions& questions : all_questions()) {
    SCOPED_TRACE(questions.name);
    const Model model = open_model(questions);
    Replica alone(model, 1);
    Replica ring(model, 3);
    const Answers want = answer(questions, alone, {});
    EXPECT_EQ(want.n_guesses, 0);
    for (Replica* replica : {&alone, &ring}) {
      const std::string ranks = replica == &alone ? "1 rank" : "3 ranks";
      SCOPED_TRACE(ranks);
      const Answers got = answer(questions, *replica, {.draft_max = 12});
      EXPECT_GT(got.n_guesses, 0);
      n_true += got.n_true;
      fmt::print("{} on {}: {} of {} guesses came true\n", questions.name, ranks, got.n_true,
                 got.n_guesses);
      n_equal += expect_equal(want, got, tolerance_of(model));
      n_tokens += kAnswer * std::ssize(questions.prompts);
    }
  }
  fmt::print("{} of {} tokens equal, the others behind ties\n", n_equal, n_tokens);
  EXPECT_GT(n_true, n_tokens / 10);
  EXPECT_GT(static_cast<double>(n_equal), 0.95 * static_cast<double>(n_tokens));
}

void expect_same_bits(const Answers& want, const Answers& got) {
  ASSERT_EQ(got.of_request.size(), want.of_request.size());
  for (const auto& [request, tokens] : want.of_request) {
    const auto& others = got.of_request.at(request);
    ASSERT_EQ(others.size(), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(others[i].token, tokens[i].token) << "question " << request << " token " << i;
      for (std::size_t t = 0; t < tokens[i].top.size(); ++t) {
        ASSERT_EQ(others[i].top.at(t).logprob, tokens[i].top[t].logprob)
            << "question " << request << " token " << i;
      }
    }
  }
}

// The model itself as its draft model, which reads all of the text, or too little of it to be right
// always; drawn at temperature 1 as well: not only the distribution is the model's, each draw is.
// With one order of sums, so that all is the same to the bit.
TEST(GuessedAnswers, WithOneOrderOfSumsHaveTheSameBits) {
  std::int64_t n_guesses = 0;
  std::int64_t n_true = 0;
  std::vector<Questions> all = all_questions();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Questions& questions = all[i];
    SCOPED_TRACE(questions.name);
    const Model model = open_model(questions);
    Model every_token = model;
    every_token.heads = dense_heads(model.weights->spec());
    Replica replica(model, i % 2 == 0 ? 1 : 3, Bits::kSame);
    for (const double temperature : {0.0, 1.0}) {
      Replica draft(every_token, 1);
      const Answers want = answer(questions, replica, {.temperature = temperature});
      const Answers got = answer(questions, replica,
                                 {.draft_max = 6,
                                  .least = 8,
                                  .draft = &draft,
                                  .draft_context = i % 3 == 0 ? 8192 : 256,
                                  .temperature = temperature});
      n_guesses += got.n_guesses;
      n_true += got.n_true;
      expect_same_bits(want, got);
      const Answers looked_up =
          answer(questions, replica, {.draft_max = 12, .temperature = temperature});
      EXPECT_GT(looked_up.n_guesses, 0);
      expect_same_bits(want, looked_up);
    }
  }
  fmt::print("{} of {} guesses came true\n", n_true, n_guesses);
  EXPECT_GT(n_true, n_guesses / 4);
  EXPECT_LT(n_true, n_guesses);
}

}  // namespace
}  // namespace longhaul::test
