// Commands other than run on several ranks: under mpirun and as threads they give what one rank
// gives, and one output however many processes there are.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "tests/fault/child_process.h"
#include "tests/fault/mpirun.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using test::ChildProcess;
using test::Ended;
using test::Words;
using testing::HasSubstr;
using testing::StartsWith;

std::string example(std::string_view name) { return test::example_path(name).string(); }

std::int64_t count(const std::string& text, std::string_view part) {
  std::int64_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

enum class Ranks { kOne, kThreads, kProcesses };

class EveryCommand : public testing::Test {
 protected:
  // `ranks` with n of them; one thread each.
  Ended run(Words words, Ranks ranks, int n = 1) const {
    if (ranks == Ranks::kThreads) {
      words.emplace_back("--ranks");
      words.push_back(std::to_string(n));
    }
    const bool by_mpi = ranks == Ranks::kProcesses;
    return ChildProcess(folder_.path(), words, by_mpi ? test::mpirun_variables() : Words(),
                        by_mpi ? test::mpirun(n) : Words())
        .end();
  }
  std::string prefix(std::string_view name) const {
    return (folder_.path() / std::string(name)).string();
  }
  // The file that a command with -o prefix(name) wrote.
  std::string file(std::string_view name, std::string_view ending) const {
    return read_file(prefix(name) + std::string(ending), std::size_t{1} << 26);
  }
  // Runs with -o prefix(name) and expects success.
  Ended written(std::string_view name, Words words, Ranks ranks, int n = 1) const {
    words.insert(words.end(), {"-t", "1", "-o", prefix(name)});
    const Ended ended = run(words, ranks, n);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    return ended;
  }

  test::TemporaryFolder folder_;
};

// Every run's questions and answers, as text.
std::string answers_of(const std::string& json) {
  const Json report = parse_json(json, "needle");
  const JsonField runs = JsonField(report, "needle").at("runs");
  std::string text;
  for (std::size_t i = 0; i < runs.size(); ++i) text += to_text(runs.at(i).at("cases").json());
  return text;
}

TEST_F(EveryCommand, NeedleGivesTheGridOfOneRankAnswerForAnswer) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Words words = {"eval",
                       "needle",
                       "-m",
                       example("model"),
                       "--head-profile",
                       example("profile"),
                       "--lengths",
                       "1K,3K",
                       "--depths",
                       "0,50,100",
                       "--documents",
                       "2",
                       "--records-per-document",
                       "2"};
  const Ended one = written("one", words, Ranks::kOne);
  EXPECT_THAT(one.output, HasSubstr("of 12 answers right"));
  for (const auto& [name, ranks, n] :
       {std::tuple{"threads", Ranks::kThreads, 3}, std::tuple{"three", Ranks::kProcesses, 3},
        std::tuple{"two", Ranks::kProcesses, 2}}) {
    const Ended many = written(name, words, ranks, n);
    EXPECT_EQ(many.output, one.output) << name;  // one table, the same
    EXPECT_EQ(file(name, ".csv"), file("one", ".csv")) << name;
    EXPECT_EQ(answers_of(file(name, ".json")), answers_of(file("one", ".json"))) << name;
    EXPECT_EQ(count(many.errors, "of 12 right"), 1) << many.errors;
  }
}

TEST_F(EveryCommand, NeedlePlansAnewForEachHead) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Words words = {"eval",      "needle",   "-m",       example("model"), "--sink",
                       "16",        "--recent", "128",      "--each-head",    "only",
                       "--lengths", "1K",       "--depths", "20,80"};
  const Ended one = written("one", words, Ranks::kOne);
  const Ended many = written("many", words, Ranks::kProcesses, 2);
  EXPECT_EQ(many.output, one.output);
  EXPECT_EQ(answers_of(file("many", ".json")), answers_of(file("one", ".json")));
}

// Negative log-likelihoods of every policy, position by position. With float weights: ranks add in
// another order, and the rounding of bf16 would hide what is compared.
void expect_same_scores(const std::string& want, const std::string& got) {
  const Json a = parse_json(want, "want"), b = parse_json(got, "got");
  const JsonField wanted = JsonField(a, "want").at("policies");
  const JsonField gotten = JsonField(b, "got").at("policies");
  ASSERT_EQ(wanted.size(), gotten.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(to_text(gotten.at(i).at("positions").json()),
              to_text(wanted.at(i).at("positions").json()));
    const JsonField x = wanted.at(i).at("nll"), y = gotten.at(i).at("nll");
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t j = 0; j < x.size(); ++j)
      EXPECT_NEAR(y.at(j).as_number(), x.at(j).as_number(), 1e-3) << "policy " << i << ", " << j;
    EXPECT_NEAR(gotten.at(i).at("mean_nll").as_number(), wanted.at(i).at("mean_nll").as_number(),
                1e-4);
  }
}

TEST_F(EveryCommand, PerplexityScoresAsOneRankDoesUnderEveryPolicy) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Words words = {"eval",
                       "perplexity",
                       "-m",
                       example("model"),
                       "--weights",
                       "f32",
                       "-f",
                       example("documents/harbour_log.txt"),
                       "--tokens",
                       "500",
                       "--policy",
                       "dense,window,recompute,streaming-absolute,duo",
                       "--head-profile",
                       example("profile"),
                       "--window",
                       "100",
                       "--recompute-stride",
                       "90",
                       "-b",
                       "128"};
  const Ended one = written("one", words, Ranks::kOne);
  for (const auto& [name, ranks, n] :
       {std::tuple{"threads", Ranks::kThreads, 3}, std::tuple{"two", Ranks::kProcesses, 2}}) {
    const Ended many = written(name, words, ranks, n);
    EXPECT_EQ(count(many.output, "microseconds/token"), 1) << many.output;
    expect_same_scores(file("one", ".json"), file(name, ".json"));
  }
}

TEST_F(EveryCommand, PerplexitySamplesTheSameTextOnAnyRanks) {
  const Words words = {"eval",     "perplexity",     "-m",  example("model"), "--weights",
                       "f32",      "--self-sampled", "200", "--piece-length", "40",
                       "--policy", "dense"};
  written("one", words, Ranks::kOne);
  written("two", words, Ranks::kThreads, 2);
  EXPECT_EQ(file("two", ".tokens"), file("one", ".tokens"));
}

// The scores of a report, and nothing that depends on time.
std::string scores_of(const std::string& json) {
  const Json report = parse_json(json, "perplexity");
  return to_text(JsonField(report, "perplexity").at("policies").at(0).at("nll").json());
}

class EveryWeightType : public EveryCommand, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, EveryWeightType, testing::Values("int4", "fp8"));

TEST_P(EveryWeightType, GivesTheBitsOfOneRankOnAny) {
  const Words words = {"eval",
                       "perplexity",
                       "-m",
                       example("model"),
                       "--weights",
                       GetParam(),
                       "-f",
                       example("documents/harbour_log.txt"),
                       "--tokens",
                       "300",
                       "--policy",
                       "dense",
                       "-b",
                       "128",
                       "--reproducible"};
  written("1", words, Ranks::kOne);
  for (const int n : {2, 3}) {
    const std::string name = std::to_string(n);
    written(name, words, Ranks::kThreads, n);
    EXPECT_EQ(scores_of(file(name, ".json")), scores_of(file("1", ".json"))) << n << " ranks";
  }
}

TEST_P(EveryWeightType, IsPlannedMeasuredAndAnsweredWith) {
  const auto with_type = [&](Words words, int n) {
    words.insert(words.end(), {"-m", example("model"), "--weights", GetParam()});
    const Ended ended = run(words, Ranks::kThreads, n);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    return ended.output;
  };
  EXPECT_THAT(with_type({"plan", "--memory", "1G", "--document-tokens", "10K"}, 2),
              HasSubstr("2 ranks in all"));
  EXPECT_THAT(with_type({"bench", "-p", "40", "-n", "2", "-r", "1", "-t", "1"}, 1),
              HasSubstr(GetParam()));
  const auto answer = [&](int n) {
    return with_type(
        {"run", "-p", "The harbour", "-n", "8", "--temp", "0", "--reproducible", "-t", "1"}, n);
  };
  const std::string one = answer(1);
  EXPECT_NE(one, "");
  EXPECT_EQ(answer(2), one);
  EXPECT_EQ(answer(3), one);
}

TEST_F(EveryCommand, BenchPrintsOneTableOfAllRanks) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Words words = {"bench", "--shape", example("model"), "-p", "40", "-n",
                       "3",     "-d",      "0,70",           "-r", "2",  "-t",
                       "1"};
  for (const auto& [ranks, n] : {std::tuple{Ranks::kOne, 1}, std::tuple{Ranks::kThreads, 3},
                                 std::tuple{Ranks::kProcesses, 2}}) {
    Words as_json = words;
    as_json.insert(as_json.end(), {"-o", "json", "--no-progress"});
    const Ended ended = run(as_json, ranks, n);
    ASSERT_EQ(ended.status, 0) << ended.errors;
    EXPECT_EQ(ended.errors, "");
    const Json json = parse_json(ended.output, "stdout");  // one document
    const JsonField rows(json, "stdout");
    ASSERT_EQ(rows.size(), 4U);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows.at(i).at("n_ranks").as_integer(1, 8), n);
      EXPECT_EQ(rows.at(i).at("n_threads").as_integer(1, 8), 1);
      EXPECT_GT(rows.at(i).at("avg_ts").as_number(), 0);
      EXPECT_GT(rows.at(i).at("bound_ts").as_number(), 0);
    }
  }
  Words as_text = words;
  as_text.insert(as_text.end(), {"--stages", "2"});
  const Ended text = run(as_text, Ranks::kProcesses, 2);
  ASSERT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, StartsWith("| model "));
  EXPECT_EQ(count(text.output, "| of bound |"), 1) << text.output;
  EXPECT_EQ(count(text.output, "pp40 @ d70 |"), 1) << text.output;
  EXPECT_THAT(text.output, HasSubstr("| ranks | threads |"));
}

TEST_F(EveryCommand, PlanAndKernelsPrintOnce) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Ended plan =
      run({"plan", "-m", example("model"), "--document-tokens", "100000"}, Ranks::kProcesses, 2);
  EXPECT_EQ(plan.status, 0) << plan.errors;
  const Words described = {"plan",     "-m", example("model"),    "--ranks", "2",
                           "--memory", "1G", "--document-tokens", "100000"};
  const Ended two = run(described, Ranks::kProcesses, 2);
  const Ended one = run(described, Ranks::kOne);
  EXPECT_EQ(two.status, 0) << two.errors;
  EXPECT_EQ(two.output, one.output);
  EXPECT_EQ(count(plan.output, "rank 1"), count(one.output, "rank 1")) << plan.output;
  const Ended kernels = run({"bench", "kernels", "--list"}, Ranks::kProcesses, 2);
  EXPECT_EQ(kernels.status, 0) << kernels.errors;
  EXPECT_EQ(kernels.output, run({"bench", "kernels", "--list"}, Ranks::kOne).output);
}

TEST_F(EveryCommand, SaysWhatIsWrongOnce) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Ended needle =
      run({"eval", "needle", "-m", example("model"), "--lengths", "4X"}, Ranks::kProcesses, 2);
  EXPECT_EQ(needle.status, 2);
  EXPECT_EQ(count(needle.errors, "--lengths: '4X' is no count"), 1) << needle.errors;
  const Ended bench = run({"bench"}, Ranks::kProcesses, 2);
  EXPECT_EQ(bench.status, 2);
  EXPECT_EQ(count(bench.errors, "which model?"), 1) << bench.errors;
}

}  // namespace
}  // namespace longhaul
