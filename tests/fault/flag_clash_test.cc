// Flags that do not go together, and flags that would have no effect beside the others, are a wrong
// command line: refused by name with status 2 by every command that has them, before anything
// starts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fault/child_process.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Ended;
using test::joined;
using test::Words;
using testing::HasSubstr;

std::string model() { return test::example_path("model").string(); }
std::string profile() { return test::example_path("profile").string(); }

Words run(const Words& more) { return joined({"run", "-m", model(), "-p", "Hi", "-n", "1"}, more); }
Words batch(const Words& more) {
  return joined({"run", "-m", model(), "-i", "in.jsonl", "-o", "out.jsonl"}, more);
}
Words plan(const Words& more) {
  return joined(
      {"plan", "-m", model(), "--ranks", "2", "--memory", "1G", "--document-tokens", "1K"}, more);
}
Words bench(const Words& more) {
  return joined({"bench", "--shape", model(), "-p", "16", "-n", "0", "-r", "1"}, more);
}
Words needle(const Words& more) {
  return joined({"eval", "needle", "-m", model(), "--lengths", "500"}, more);
}
Words methods(const Words& more) {
  return joined({"eval", "methods", "-m", model(), "--lengths", "500"}, more);
}
Words perplexity(const Words& more) {
  const std::string text = test::example_path("documents/harbour_log.txt").string();
  return joined({"eval", "perplexity", "-m", model(), "-f", text, "--tokens", "50"}, more);
}
Words identify(const Words& more) {
  return joined({"identify", "-m", model(), "--record-form", "codes", "--max-length", "300",
                 "--min-length", "200", "--records", "1"},
                more);
}

struct Refused {
  Words words;
  std::string message;
};

class FlagClash : public testing::Test {
 protected:
  void expect_refused(const std::vector<Refused>& cases) {
    replace_file(
        folder_.path() / "in.jsonl",
        R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"Hi"}})"
        "\n");
    for (const auto& [words, message] : cases) {
      SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
      const Ended ended = ChildProcess(folder_.path(), words).end();
      EXPECT_EQ(ended.status, 2) << ended.errors;
      EXPECT_THAT(ended.errors, HasSubstr(message));
      EXPECT_FALSE(fs::exists(folder_.path() / "out.jsonl"));
    }
  }
  test::TemporaryFolder folder_;
};

// They ended with 4, as if the machine lacked something.
TEST_F(FlagClash, GuessesWhereAMethodCannotTakeThemBack) {
  std::vector<Refused> cases;
  for (const char* method : {"h2o", "fastgen", "tova:after=token", "quest", "razor"}) {
    const Words policy = {"--policy", method};
    cases.push_back({run(joined(policy, {"--draft-max", "4"})), "--draft-max: a wrong guess"});
    cases.push_back(
        {run(joined(policy, {"--draft-model", model()})), "--draft-model: a wrong guess"});
    cases.push_back({plan(joined(policy, {"--draft-max", "4"})), "--draft-max: a wrong guess"});
    cases.push_back(
        {bench(joined(policy, {"-d", "64", "--quote", "8"})), "--quote: a wrong guess"});
  }
  expect_refused(cases);
}

TEST_F(FlagClash, CachesThatCannotHoldWhatAMethodKeeps) {
  std::vector<Refused> cases;
  for (const char* method : {"snapkv", "h2o", "quest", "razor", "infinite", "streaming"}) {
    const Words flags = {"--policy", method, "--ctk", "kivi4"};
    for (const Words& words : {run(flags), plan(flags), bench(flags), needle(flags)})
      cases.push_back({words, "whose tokens are quantised in groups: give another --cache-type-k"});
  }
  cases.push_back({methods({"--method", "snapkv", "--ctv", "kivi2"}), "quantised in groups"});
  cases.push_back({perplexity({"--policy", "infinite", "--ctk", "kivi4"}), "quantised in groups"});
  const Words small_blocks = {"--ctk", "kivi4", "--block-size", "16"};
  for (const Words& words : {run(small_blocks), run(joined(small_blocks, {"--ranks", "2"})),
                             plan(small_blocks), bench(small_blocks), needle(small_blocks)})
    cases.push_back({words, "have groups of 32 tokens and channels, but blocks have 16 tokens"});
  cases.push_back({{"bench", "kv", "--ctk", "kivi4", "--block-size", "16"}, "groups of 32 tokens"});
  expect_refused(cases);
}

TEST_F(FlagClash, BitsThatAMethodCannotRepeat) {
  std::vector<Refused> cases;
  const Words flags = {"--policy", "h2o", "--reproducible"};
  for (const Words& words :
       {run(flags), run(joined(flags, {"--ranks", "2"})), plan(flags), bench(flags), needle(flags)})
    cases.push_back({words, "--reproducible: KV head 0 of layer 0"});
  cases.push_back({methods({"--method", "h2o", "--reproducible"}), "--reproducible: KV head 0"});
  cases.push_back({plan({"--device", "cuda", "--reproducible"}), "--reproducible: GPUs add up"});
  expect_refused(cases);
}

TEST_F(FlagClash, WhatADraftModelCannotGuessFor) {
  expect_refused(
      {{run({"--draft-model", model(), "--replicas", "2"}), "--replicas asks for several"},
       {run({"--draft-model", model(), "--device", "auto"}), "it computes on CPUs"}});
}

TEST_F(FlagClash, MethodsThatAreForAnotherModelOrCommand) {
  expect_refused({{run({"--policy", "dmc"}), "config.json has no dmc_window_size"},
                  {plan({"--policy", "dmc"}), "config.json has no dmc_window_size"},
                  {run({"--head-profile", profile(), "--full-heads", "infinite:cap=300",
                        "--streaming-heads", "streaming:window=200"}),
                   "must all keep one window"},
                  {perplexity({"--policy", "snapkv"}), "--policy snapkv"},
                  {perplexity({"--policy", "h2o"}), "it chooses when a text is whole"}});
}

// Each was taken, and changed nothing.
TEST_F(FlagClash, FlagsOfRunThatHaveNoEffect) {
  const std::string folder = (folder_.path() / "x").string();
  expect_refused(
      {{run({"--checkpoint-every", "2%"}), "--checkpoint-every needs --checkpoint-dir"},
       {run({"--checkpoint-dir", folder, "--checkpoint-every", "never"}), "never saves nothing"},
       {batch({"--checkpoint-dir", folder, "--checkpoint-every", "never"}), "never saves nothing"},
       {run({"--parallel", "2"}), "--parallel has no effect here: -p asks one question"},
       {run({"--lossy-text"}), "--lossy-text has no effect here: it is for documents"},
       {run({"--no-chat", "--chat-template", "x.jinja"}), "--chat-template has no effect here"},
       {run({"-q", "--verbose"}), "--verbose has no effect here: -q"},
       {run({"-q", "--kv-report"}), "--kv-report has no effect here: -q"},
       {batch({"--overwrite", "--accept-edited"}), "--accept-edited has no effect here"}});
}

TEST_F(FlagClash, FlagsOfIdentifyThatHaveNoEffect) {
  std::vector<Refused> cases = {
      {identify({"-o", "heads", "--plan", "plan.json"}), "--plan has no effect here: a plan is"},
      {identify({"-o", "heads", "--replicas", "2"}), "--replicas has no effect here: all ranks"},
      {identify({"--compare", "--overwrite"}), "--overwrite has no effect here: it needs -o"},
      {identify({"--compare", "--checkpoint-every", "5"}), "it needs -o FOLDER, where states"}};
  for (const Words& flag :
       {Words{"--kv-limit", "1G"}, Words{"--chunk-len", "64"}, Words{"--reproducible"},
        Words{"--cache-type-v", "int8"}, Words{"--stages", "1"},
        Words{"--decode-balance", "phases"}, Words{"--history", "keys"},
        Words{"--gpu-transfers", "nccl"}, Words{"--trace", "trace.json"}}) {
    cases.push_back({identify(joined({"-o", "heads"}, flag)),
                     flag.front() + " has no effect here: it needs --target"});
  }
  expect_refused(cases);
  EXPECT_FALSE(fs::exists(folder_.path() / "heads"));
}

TEST_F(FlagClash, FlagsOfOtherCommandsThatHaveNoEffect) {
  const std::string cluster =
      test::source_path("tests/unit/partition/clusters/lopsided.toml").string();
  const Words described = {"plan", "-m", model(), "--cluster", cluster};
  const Words training = {
      "plan", "-m", model(), "--ranks", "2", "--memory", "1G", "--identify-tokens", "1K"};
  expect_refused(
      {{joined(described, {"--device", "cuda"}), "--device has no effect here: --cluster says"},
       {joined(described, {"--threads", "2"}), "--threads has no effect here"},
       {plan({"--threads", "2"}), "--threads has no effect here"},
       {joined(training, {"--policy", "h2o"}), "--policy is for plans"},
       {joined(training, {"--stages", "2"}), "--stages is for plans"},
       {needle({"--sink", "8"}), "--sink has no effect here: it needs heads that stream"},
       {needle({"--recent", "64"}), "--recent has no effect here: it needs heads that stream"},
       {methods({"--text-tokens", "10"}), "--text-tokens has no effect here: it needs --text"},
       {methods({"--method", "dense", "--budgets", "50"}), "--budgets has no effect here"},
       {bench({"--draft-max", "4"}), "--draft-max has no effect here: it needs --quote"},
       {bench({"--fp8-activations"}), "--fp8-activations requires --model"},
       {{"report", "-o", "report", "--status-token-file", "token"}, "it needs --status PORT"},
       {{"top", "1", "--once", "--every", "2"}, "--every has no effect here: --once"}});
}

// Variables may be meant for other commands.
TEST_F(FlagClash, VariablesOfTheEnvironmentAreNotRefused) {
  const Ended ended =
      ChildProcess(folder_.path(), run({}), {"LONGHAUL_CHECKPOINT_EVERY=5m", "LONGHAUL_PARALLEL=2"})
          .end();
  EXPECT_EQ(ended.status, 0) << ended.errors;
}

}  // namespace
}  // namespace longhaul
