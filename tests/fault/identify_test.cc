// `longhaul identify` as its users run it, on the embedded model: the profile that it writes, a
// stop in the middle, ranks, and what it says to what cannot be done.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "model/head_profile.h"
#include "tests/fault/child_process.h"
#include "tests/fault/mpirun.h"
#include "tests/support/paths.h"
#include "tests/unit/eval/xml_check.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Ended;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string example(std::string_view name) { return test::example_path(name).string(); }

class Identify : public testing::Test {
 protected:
  Ended run(Words words, int n_processes = 0) {
    words.insert(words.begin(), {"identify", "-m", example("model"), "-t", "1", "--no-progress"});
    const bool by_mpi = n_processes > 0;
    return ChildProcess(folder_.path(), words, by_mpi ? test::mpirun_variables() : Words(),
                        by_mpi ? test::mpirun(n_processes) : Words())
        .end();
  }
  // Short texts of the form that the model was trained on.
  Ended run_short(const std::string& to, const Words& more, int n_processes = 0) {
    Words words = {"-o",        path(to), "--record-form", "codes", "--records",    "2",
                   "--sink",    "16",     "--recent",      "32",    "--weights",    "f32",
                   "--lengths", "2",      "--min-length",  "200",   "--max-length", "300",
                   "--steps"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words, n_processes);
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string file(const std::string& name) const { return read_file(path(name), 1 << 24); }
  test::TemporaryFolder folder_;
};

TEST_F(Identify, WritesAProfileThatItsModelAccepts) {
  const Ended ended = run_short("heads", {"4", "--compare"});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("widest gap"));
  EXPECT_THAT(ended.output, HasSubstr("induction"));
  const HeadProfile profile = read_head_profile(path("heads"));
  EXPECT_EQ(profile.n_layers, 4);
  EXPECT_EQ(profile.sink, 16);
  EXPECT_TRUE(profile.weights_sha256);
  EXPECT_EQ(test::xml_problem(file("heads/heads.svg")), "");
  EXPECT_FALSE(fs::exists(path("heads/identify_state.json")));
  const Words ask = {"run", "-m", example("model"), "-p",         "a",
                     "-n",  "1",  "--head-profile", path("heads")};
  ChildProcess accepted(folder_.path(), ask);
  EXPECT_EQ(accepted.wait(), 0) << accepted.errors();
  // The same shape with other weights.
  fs::copy(example("model"), path("other"));
  std::string weights = file("other/model.safetensors");
  weights[weights.size() - 9] = static_cast<char>(weights[weights.size() - 9] ^ 1);
  replace_file(path("other/model.safetensors"), weights);
  Words other = ask;
  other[2] = path("other");
  ChildProcess refused(folder_.path(), other);
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_THAT(refused.errors(), HasSubstr("made for other weights"));
  const Ended twice = run_short("heads", {"4"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.errors, HasSubstr("holds a profile"));
}

TEST_F(Identify, GoesOnAfterAStopWithTheSameGates) {
  ASSERT_EQ(run_short("whole", {"12"}).status, 0);
  Words words = {"identify",
                 "-m",
                 example("model"),
                 "-t",
                 "1",
                 "--no-progress",
                 "-o",
                 path("cut"),
                 "--record-form",
                 "codes",
                 "--records",
                 "2",
                 "--sink",
                 "16",
                 "--recent",
                 "32",
                 "--weights",
                 "f32",
                 "--lengths",
                 "2",
                 "--min-length",
                 "200",
                 "--max-length",
                 "300",
                 "--steps",
                 "12",
                 "--checkpoint-every",
                 "1"};
  {
    ChildProcess process(folder_.path(), words);
    while (!fs::exists(path("cut/identify_state.json")) && process.running()) {
    }
    process.signal(SIGTERM);
    const int status = process.wait();
    ASSERT_TRUE(status == 75 || status == 0) << process.errors();
  }
  if (fs::exists(path("cut/identify_state.json"))) {
    words[19] = "3";  // other texts
    ChildProcess other(folder_.path(), words);
    EXPECT_EQ(other.wait(), 2);
    EXPECT_THAT(other.errors(), HasSubstr("begun with other settings"));
    words[19] = "2";
    ChildProcess again(folder_.path(), words);
    ASSERT_EQ(again.wait(), 0) << again.errors();
  }
  EXPECT_EQ(file("cut/full_attention_heads.tsv"), file("whole/full_attention_heads.tsv"));
}

TEST_F(Identify, RanksFindTheSameGates) {
  ASSERT_EQ(run_short("one", {"3"}).status, 0);
  const Ended ended = run_short("three", {"3", "--ranks", "3"});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const HeadProfile one = read_head_profile(path("one"));
  const HeadProfile three = read_head_profile(path("three"));
  for (std::size_t i = 0; i < one.gates.size(); ++i)
    EXPECT_NEAR(three.gates[i], one.gates[i], 1e-3) << i;
}

TEST_F(Identify, ProcessesFindTheSameGatesWithOneOutput) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  ASSERT_EQ(run_short("one", {"3"}).status, 0);
  const Ended ended = run_short("two", {"3"}, 2);
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_EQ(ended.output.find("widest gap"), ended.output.rfind("widest gap"));
  const HeadProfile one = read_head_profile(path("one"));
  const HeadProfile two = read_head_profile(path("two"));
  for (std::size_t i = 0; i < one.gates.size(); ++i)
    EXPECT_NEAR(two.gates[i], one.gates[i], 1e-3) << i;
}

TEST_F(Identify, RefusesBeforeTheStart) {
  const Ended long_texts = run({"-o", path("x"), "--max-length", "4M"});
  EXPECT_EQ(long_texts.status, 2);
  EXPECT_THAT(long_texts.errors, HasSubstr("the model reads at most"));
  const Ended no_room = run({"-o", path("x"), "--min-length", "100", "--max-length", "500"});
  EXPECT_EQ(no_room.status, 2);
  EXPECT_THAT(no_room.errors, HasSubstr("no room for 10 records"));
  replace_file(path("short.txt"), "A short text.");
  const Ended short_text =
      run({"-o", path("x"), "--max-length", "2K", "--haystack", path("short.txt")});
  EXPECT_EQ(short_text.status, 2);
  EXPECT_THAT(short_text.errors, HasSubstr("give a longer one"));
  const Ended int8 = run({"-o", path("x"), "--weights", "int8", "--max-length", "2K"});
  EXPECT_EQ(int8.status, 2);
  EXPECT_THAT(int8.errors, HasSubstr("--weights bf16"));
  const Ended estimate = run({"--estimate", "--max-length", "4K"});
  EXPECT_EQ(estimate.status, 0) << estimate.errors;
  EXPECT_THAT(estimate.output, HasSubstr("TFLOP"));
}

}  // namespace
}  // namespace longhaul
