// `longhaul eval` as its users run it, on the embedded model: small grids, short texts, all files
// that it writes, and what it says to wrong flags.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>
#include <tuple>

#include "base/file.h"
#include "base/json.h"
#include "tests/fault/child_process.h"
#include "tests/support/paths.h"
#include "tests/unit/eval/xml_check.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Ended;
using test::Words;
using testing::HasSubstr;

std::string example(std::string_view name) { return test::example_path(name).string(); }

// Whether the process has handlers of its own for SIGINT.
bool catches_stops(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1) & 1U) != 0;
  }
  return false;
}

class Eval : public testing::Test {
 protected:
  Ended run(const std::string& what, const Words& more) {
    Words words = {"eval", what, "-m", example("model"), "-t", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return ChildProcess(folder_.path(), words).end();
  }
  std::string prefix() const { return (folder_.path() / "out").string(); }
  std::string file(const std::string& ending) const {
    return read_file(prefix() + ending, std::size_t{1} << 26);
  }
  test::TemporaryFolder folder_;
};

TEST_F(Eval, NeedleFindsEveryRecordWithItsProfile) {
  const Ended ended = run("needle", {"--head-profile", example("profile"), "--lengths", "1K,4K",
                                     "--depths", "0,50,100", "--no-progress", "-o", prefix()});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_EQ(ended.errors, "");
  EXPECT_THAT(ended.output, HasSubstr("6 of 6 answers right"));
  EXPECT_EQ(test::xml_problem(file(".svg")), "");
  EXPECT_THAT(file(".csv"), HasSubstr(",4096,0.5,1,1,1\n"));
  const Json json = parse_json(file(".json"), "out.json");
  const JsonField run = JsonField(json, "out.json").at("runs").at(0);
  EXPECT_EQ(run.at("exact_match").as_number(), 1.0);
  ASSERT_EQ(run.at("cases").size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    const JsonField c = run.at("cases").at(i);
    EXPECT_THAT(c.at("answer").as_string(), HasSubstr(c.at("expected").as_string()));
  }
  // Behind <s>, a third of the way, and in front of the end.
  EXPECT_EQ(run.at("cases").at(3).at("position").as_integer(0, 4096), 1);
  EXPECT_NEAR(run.at("cases").at(4).at("position").as_number(), 2048, 30);
  EXPECT_GT(run.at("cases").at(5).at("position").as_number(), 4060);
}

TEST_F(Eval, NeedleShowsWhichHeadIsNeeded) {
  const Ended ended = run("needle", {"--sink", "16", "--recent", "128", "--each-head", "streaming",
                                     "--lengths", "1K", "--depths", "50", "-o", prefix()});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("streaming 3:2: 0 of 1 right"));
  const Json json = parse_json(file(".json"), "out.json");
  const JsonField runs = JsonField(json, "out.json").at("runs");
  ASSERT_EQ(runs.size(), 16U);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(runs.at(i).at("right").as_integer(0, 1), i == 14 ? 0 : 1) << i;
  }
  EXPECT_EQ(runs.at(14).at("heads").at("retrieval_mask").at(3).as_string(), "1101");
}

TEST_F(Eval, PerplexityIsTheSameUntilSomethingIsEvicted) {
  const Ended ended = run(
      "perplexity", {"-f", example("documents/harbour_log.txt"), "--tokens", "700", "--policy",
                     "dense,window,recompute,streaming,streaming-absolute,duo", "--head-profile",
                     example("profile"), "--window", "100", "--recompute-stride", "33", "--bucket",
                     "100", "-b", "64", "--no-progress", "-o", prefix()});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("microseconds/token"));
  EXPECT_EQ(test::xml_problem(file(".svg")), "");
  const Json json = parse_json(file(".json"), "out.json");
  const JsonField policies = JsonField(json, "out.json").at("policies");
  ASSERT_EQ(policies.size(), 6U);
  std::map<std::int64_t, double> dense;
  for (std::size_t i = 0; i < 6; ++i) {
    const JsonField nll = policies.at(i).at("nll");
    EXPECT_EQ(nll.size(), i == 2 ? 22U : 699U);
    int n_different = 0;
    for (std::size_t j = 0; j < nll.size(); ++j) {
      const std::int64_t position = policies.at(i).at("positions").at(j).as_integer(1, 699);
      if (i == 0) dense[position] = nll.at(j).as_number();
      const bool is_near = std::abs(nll.at(j).as_number() - dense.at(position)) < 0.05;
      // The query before the scored token sees the whole text as long as that fits the window.
      EXPECT_TRUE(is_near || position > 100) << "policy " << i << " at " << position;
      n_different += is_near ? 0 : 1;
    }
    EXPECT_TRUE(i != 1 || n_different > 50) << n_different;
  }
}

TEST_F(Eval, PerplexityScoresTextOfItsOwn) {
  const Ended ended = run("perplexity", {"--self-sampled", "300", "--piece-length", "40", "--seed",
                                         "5", "--policy", "dense", "-o", prefix()});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const std::string tokens = file(".tokens");
  EXPECT_EQ(std::ranges::count(tokens, ' '), 299);
  const auto score = [](const std::string& text) {
    const Json json = parse_json(text, "out.json");
    return JsonField(json, "out.json").at("policies").at(0).at("mean_nll").as_number();
  };
  const double first = score(file(".json"));
  const Ended again = run("perplexity", {"--token-ids", prefix() + ".tokens", "--policy", "dense",
                                         "-o", (folder_.path() / "again").string()});
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(score(read_file(folder_.path() / "again.json", 1 << 26)), first);
}

// Under a method that keeps everything a text's continuation is as likely token by token, in a fork
// of its document, as in one piece.
TEST_F(Eval, MethodsPredictATextAsOnePieceOfItWould) {
  const std::string text = example("documents/harbour_log.txt");
  const Ended methods = run("methods", {"--lengths", "400", "--budgets", "25", "--depths", "50",
                                        "--method", "dense", "snapkv", "--text", text,
                                        "--text-tokens", "40", "--weights", "f32", "-o", prefix()});
  ASSERT_EQ(methods.status, 0) << methods.errors;
  EXPECT_EQ(test::xml_problem(file(".svg")), "");
  EXPECT_EQ(test::xml_problem(file(".perplexity.svg")), "");
  const Json table = parse_json(file(".json"), "out.json");
  const JsonField rows = JsonField(table, "out.json").at("rows");
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_EQ(run("perplexity", {"-f", text, "--tokens", "472", "--policy", "dense", "--weights",
                               "f32", "-o", prefix()})
                .status,
            0);
  const Json scores = parse_json(file(".json"), "out.json");
  const JsonField nll = JsonField(scores, "out.json").at("policies").at(0).at("nll");
  double sum = 0;
  for (std::size_t i = nll.size() - 40; i < nll.size(); ++i) sum += nll.at(i).as_number();
  EXPECT_NEAR(std::log(rows.at(0).at("perplexity").as_number()), sum / 40, 1e-4);
  EXPECT_GT(rows.at(1).at("perplexity").as_number(), 1);
}

// What is predicted once left out that the newest tokens of caches that quantise groups are f32.
TEST_F(Eval, MethodsPredictTheBytesOfTokensThatAreNotYetQuantised) {
  for (const std::string length : {"384", "400"}) {  // 6 blocks of 64; and a quarter of one more
    const Ended methods =
        run("methods", {"--lengths", length, "--depths", "50", "--max-tokens", "4", "--budgets",
                        "25", "--method", "dense", "window", "--cache-type-k", "kivi4",
                        "--cache-type-v", "kivi4", "-o", prefix()});
    ASSERT_EQ(methods.status, 0) << methods.errors;
    const Json table = parse_json(file(".json"), "out.json");
    const JsonField rows = JsonField(table, "out.json").at("rows");
    ASSERT_EQ(rows.size(), 2U);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows.at(i).at("kv_bytes").as_number(),
                rows.at(i).at("kv_bytes_predicted").as_number())
          << length << " tokens, row " << i;
    }
  }
}

// A stop was obeyed when all was done, and what was cut short took the place of what was whole.
TEST_F(Eval, StoppedResultsSaySoAndLeaveWholeOnesAlone) {
  replace_file(prefix() + ".json", "whole");
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"needle", "--lengths", "1K,256K", "--depths", "50"}, " of 2 documents"},
      {{"perplexity", "-f", example("documents/harbour_log.txt"), "--policy", "recompute,dense"},
       " of 2 policies"},
      {{"methods", "--lengths", "256K", "--depths", "50", "--method", "dense", "window"},
       " of 4 rows"},
  };
  for (const auto& [words, message] : cases) {
    Words all = {"eval"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"-m", example("model"), "-t", "1", "-o", prefix()});
    ChildProcess process(folder_.path(), all);
    while (process.running() && !catches_stops(process.pid()))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    process.signal(SIGINT);
    const Ended ended = process.end();
    EXPECT_EQ(ended.status, 75) << ended.errors;
    EXPECT_THAT(ended.output, HasSubstr("stopped: "));
    EXPECT_THAT(ended.output, HasSubstr(message + "; results are partial"));
    EXPECT_EQ(file(".json"), "whole");
    const Json json = parse_json(file(".partial.json"), "out.partial.json");
    EXPECT_FALSE(JsonField(json, "out.partial.json").at("complete").as_bool());
  }
}

TEST_F(Eval, SaysWhatIsWrong) {
  replace_file(folder_.path() / "ids", "1 2 x");
  replace_file(folder_.path() / "ids.empty", "");
  replace_file(folder_.path() / "ids.pdf", "%PDF-1.7\n");
  const std::string ids = (folder_.path() / "ids").string();
  const std::vector<std::tuple<std::string, Words, int, std::string>> cases = {
      {"needle", {"--lengths", "4X"}, 2, "--lengths: '4X' is no count"},
      {"needle", {"--depths", "120"}, 2, "is no percentage"},
      {"needle", {"--lengths", "64"}, 2, "is too short for 11 records"},
      {"needle", {"--all-streaming"}, 2, "streaming heads need a window"},
      {"needle", {"--only-retrieval-head", "9:9", "--recent", "8"}, 2, "'9:9' names no head"},
      {"needle", {"-o", "/nowhere/x"}, 2, "there is no folder /nowhere"},
      {"needle", {"--haystack", "/nowhere.txt"}, 5, "/nowhere.txt"},
      {"methods",
       {"--lengths", "64K", "--depths", "50", "--text", example("documents/harbour_log.txt")},
       2,
       "65536 (--lengths), a prompt of 32 and 256 to predict"},
      {"perplexity", {}, 2, "which text?"},
      {"perplexity", {"-f", ids + ".empty"}, 5, "ids.empty: the text has fewer than 2 tokens"},
      {"perplexity", {"-f", ids + ".pdf"}, 5, "ids.pdf is no text but looks like a PDF file"},
      {"needle", {"--haystack", ids + ".pdf"}, 5, "ids.pdf is no text but looks like a PDF file"},
      {"perplexity", {"-f", "/x", "--policy", "dense,more"}, 2, "'more' is none of dense, window"},
      {"perplexity", {"-f", "/x", "--policy", "duo"}, 2, "--policy duo needs --head-profile"},
      {"perplexity", {"--token-ids", ids}, 5, "byte 4: 'x' is no token id"},
      {"perplexity",
       {"-f", "/x", "--policy", "dense", "--policy", "dense"},
       2,
       "dense is there twice"},
  };
  for (const auto& [what, words, status, message] : cases) {
    const Ended ended = run(what, words);
    EXPECT_EQ(ended.status, status) << message;
    EXPECT_THAT(ended.errors, HasSubstr(message));
  }
}

// Each was taken, and changed nothing.
TEST_F(Eval, PerplexityRefusesFlagsThatHaveNoEffect) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--policy", "dense", "--window", "64"}, "--window has no effect here: it needs --policy"},
      {{"--policy", "streaming:window=64", "--window", "64"}, "streaming:window=1K"},
      {{"--policy", "dense,window", "--sink", "8"}, "--sink has no effect here"},
      {{"--recompute-stride", "16"}, "it needs --policy recompute"},
      {{"--seed", "7"}, "--seed has no effect here: it needs --self-sampled"},
      {{"--piece-length", "40"}, "--piece-length has no effect here: it needs --self-sampled"},
      {{"--bucket", "100"}, "--bucket has no effect here: it needs -o PREFIX"},
      {{"--head-profile", example("profile")}, "--head-profile has no effect here"},
      {{"--head-profile", example("profile"), "--policy", "dense", "--retrieval-ratio", "0.5"},
       "it needs --policy duo"},
  };
  for (const auto& [words, message] : cases) {
    Words all = {"-f", "/x"};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run("perplexity", all);
    EXPECT_EQ(ended.status, 2) << message << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr(message));
  }
  // Variables may be meant for other commands.
  const Ended ended = ChildProcess(folder_.path(),
                                   {"eval", "perplexity", "-m", example("model"), "-t", "1", "-f",
                                    example("documents/harbour_log.txt"), "--tokens", "20",
                                    "--policy", "dense", "--no-progress"},
                                   {"LONGHAUL_SEED=7", "LONGHAUL_WINDOW=64"})
                          .end();
  EXPECT_EQ(ended.status, 0) << ended.errors;
}

}  // namespace
}  // namespace longhaul
