// `longhaul identify` as its users run it, on the embedded model: the profile that it writes, a
// stop in the middle, ranks, and what it says to what cannot be done.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "base/device/device_cuda.h"
#include "base/file.h"
#include "base/json.h"
#include "model/head_profile.h"
#include "tests/fault/child_process.h"
#include "tests/fault/mpirun.h"
#include "tests/fault/ranked_job.h"
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

class Identify : public testing::Test {
 protected:
  // In the background, on one rank or under mpirun.
  std::unique_ptr<ChildProcess> start(Words words, int n_processes = 0) {
    words.insert(words.begin(), {"identify", "-m", example("model"), "-t", "1", "--no-progress"});
    const bool by_mpi = n_processes > 0;
    return std::make_unique<ChildProcess>(folder_.path(), words,
                                          by_mpi ? test::mpirun_variables() : Words(),
                                          by_mpi ? test::mpirun(n_processes) : Words());
  }
  Ended run(const Words& words, int n_processes = 0) { return start(words, n_processes)->end(); }
  // Short texts of the form that the model was trained on.
  Words short_words(const std::string& to, const Words& more) const {
    Words words = {"-o",        path(to), "--record-form", "codes", "--records",    "2",
                   "--sink",    "16",     "--recent",      "32",    "--weights",    "f32",
                   "--lengths", "2",      "--min-length",  "200",   "--max-length", "300",
                   "--steps"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Ended run_short(const std::string& to, const Words& more, int n_processes = 0) {
    return run(short_words(to, more), n_processes);
  }
  // Until a file is written; fails the test when the process ends before.
  void await_file(ChildProcess& process, const std::string& name) {
    while (!fs::exists(path(name)) && process.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(process.running()) << process.errors();
  }
  void await_state(ChildProcess& process, const std::string& of) {
    await_file(process, of + "/identify_state.json");
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string file(const std::string& name) const { return read_file(path(name), 1 << 24); }
  test::TemporaryFolder folder_;
};

constexpr int kSteps = 24;
const std::string n_steps = std::to_string(kSteps);

// That this run made: "12 steps in 0.3 s".
int steps_of(const Ended& ended) {
  const std::size_t at = ended.output.find(" steps in ");
  const std::size_t line = ended.output.rfind('\n', at) + 1;
  return at == std::string::npos ? -1 : std::stoi(ended.output.substr(line, at - line));
}

TEST_F(Identify, WritesAProfileThatItsModelAccepts) {
  const Ended ended = run_short("heads", {"4", "--compare"});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("widest gap"));
  EXPECT_THAT(ended.output, HasSubstr("induction"));
  const HeadProfile profile = read_head_profile(path("heads"));
  EXPECT_EQ(profile.n_layers, 4);
  EXPECT_EQ(profile.sink, 16);
  EXPECT_TRUE(profile.weights_sha256);
  // What made it stands beside it.
  const std::string config = file("heads/config.json");
  const Json made_by = parse_json(config, "config.json");
  const JsonField root(made_by, "config.json");
  EXPECT_EQ(root.at("method").as_string(), "duo_attention");
  EXPECT_EQ(root.at("settings").at("seed").as_integer(0, 100), 42);
  EXPECT_EQ(root.at("settings").at("steps").as_integer(0, 100), 4);
  EXPECT_EQ(root.at("settings").at("records").as_integer(0, 100), 2);
  EXPECT_GT(root.at("figures").at("mean_gate").as_number(), 0);
  EXPECT_GT(root.at("figures").at("peak_bytes").as_number(), 0);
  for (const char* of : {"config_sha256", "weights", "haystacks_sha256", "templates"})
    EXPECT_THAT(config, HasSubstr(of));
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
  // Again there is nothing to do, as with a run that is done; a profile of others stays as it is.
  const Ended twice = run_short("heads", {"4"});
  EXPECT_EQ(twice.status, 0) << twice.errors;
  EXPECT_THAT(twice.output, HasSubstr("has the profile already"));
  EXPECT_THAT(twice.output, HasSubstr("widest gap"));
  EXPECT_EQ(steps_of(twice), -1);
  EXPECT_EQ(file("heads/config.json"), config);
  fs::copy(example("profile"), path("published"));
  const Ended published = run_short("published", {"4"});
  EXPECT_EQ(published.status, 2);
  EXPECT_THAT(published.errors, HasSubstr("holds a profile that this command did not make"));
  // How many heads are enough is asked of it without training again; of other settings it is not.
  const Ended enough = run_short("heads", {"4", "--target", "0.9"});
  EXPECT_EQ(enough.status, 0) << enough.errors;
  EXPECT_THAT(enough.output, HasSubstr("heads are enough for 0.9"));
  EXPECT_EQ(steps_of(enough), -1);
  EXPECT_EQ(test::xml_problem(file("heads/share.svg")), "");
  const Ended other_steps = run_short("heads", {"5", "--target", "0.9"});
  EXPECT_EQ(other_steps.status, 2);
  EXPECT_THAT(other_steps.errors, HasSubstr("holds a profile of other settings"));
}

// Of a line "2:1  0.9866  1.0000 ..." of the table that --compare prints, behind its head.
std::map<std::string, std::vector<double>> compared(const std::string& output) {
  std::istringstream text(output.substr(output.find("layer:head duo_attention")));
  std::map<std::string, std::vector<double>> rows;
  std::string line;
  std::getline(text, line);
  while (std::getline(text, line)) {
    std::istringstream words(line);
    std::string head;
    words >> head;
    for (double score = 0; words >> score;) rows[head].push_back(score);
  }
  return rows;
}

// The embedded model's retrieval heads are known (examples/needle/README.md): with the published
// weight of the regularisation and window every method has both in front of all others.
TEST_F(Identify, FindsTheKnownHeadsOfTheEmbeddedModel) {
  const Ended ended =
      run({"-o", path("heads"), "--record-form", "codes", "--min-length", "256", "--max-length",
           "512", "--lengths", "2", "--records", "5", "--steps", "50", "--compare"});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("behind the first 2 of 16 heads"));
  const auto scores = compared(ended.output);
  ASSERT_EQ(scores.size(), 16U);
  for (const std::size_t method : {0U, 1U, 2U, 4U}) {  // gates, echo, induction, needle
    const double known = std::min(scores.at("2:1").at(method), scores.at("3:2").at(method));
    for (const auto& [head, of] : scores) {
      if (head == "2:1" || head == "3:2") continue;
      EXPECT_GT(known, of.at(method) + 0.3) << head << " by method " << method;
    }
  }
  const Words grid = {"eval",        "needle",    "-m", example("model"), "--head-profile",
                      path("heads"), "--lengths", "1K", "--no-progress"};
  const Ended asked = ChildProcess(folder_.path(), grid).end();
  ASSERT_EQ(asked.status, 0) << asked.errors;
  EXPECT_THAT(asked.output, HasSubstr("2 of 16 KV heads keep every token"));
  EXPECT_THAT(asked.output, HasSubstr("11 of 11 answers right"));
}

TEST_F(Identify, GoesOnAfterAStopWithTheSameGates) {
  const Words often = {n_steps, "--checkpoint-every", "1"};
  ASSERT_EQ(run_short("whole", {n_steps}).status, 0);
  const auto process = start(short_words("cut", often));
  await_state(*process, "cut");
  process->signal(SIGTERM);
  ASSERT_EQ(process->wait(), 75) << process->errors();
  const Ended other = run_short("cut", {n_steps, "--seed", "7"});  // other texts
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("begun with other settings"));
  const Ended again = run_short("cut", often);
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_LT(steps_of(again), kSteps);
  EXPECT_EQ(file("cut/full_attention_heads.tsv"), file("whole/full_attention_heads.tsv"));
}

// Whichever rank dies, at whatever step: the last state is whole, and the same command on as many
// ranks makes the same gates, bit for bit.
TEST_F(Identify, GoesOnAfterARankWasKilledWithTheSameGates) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const Words often = {n_steps, "--checkpoint-every", "3"};
  ASSERT_EQ(run_short("whole", {n_steps}, 2).status, 0);
  for (const int victim : {1, 0}) {
    const std::string to = fmt::format("cut{}", victim);
    const auto job = start(short_words(to, often), 2);
    await_state(*job, to);
    const pid_t process = test::process_of_rank(job->pid(), victim);
    ASSERT_GT(process, 0) << job->errors();
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    EXPECT_NE(job->wait(), 0);
    ASSERT_FALSE(fs::exists(path(to + "/config.json")));
    const Ended again = run_short(to, often, 2);
    ASSERT_EQ(again.status, 0) << again.errors;
    EXPECT_LT(steps_of(again), kSteps);
    EXPECT_EQ(file(to + "/full_attention_heads.tsv"), file("whole/full_attention_heads.tsv"));
  }
}

// "    16   1.000   1.000    0.00000" and so on: the curve that --target prints.
std::string curve_of(const Ended& ended) {
  const std::size_t at = ended.output.find(" heads   share");
  return at == std::string::npos ? "" : ended.output.substr(at);
}

// A search for the fewest heads keeps the points that are done, however it ends: the same command
// tries the others alone, and the curve is the one of a search that was left in peace.
TEST_F(Identify, ASearchGoesOnBehindThePointsThatAreDone) {
  const Words echo = {"1", "--method", "echo", "--copied-tokens", "60", "--seed",
                      "5", "--target", "0.9"};
  const Ended whole = run_short("whole", echo);
  ASSERT_EQ(whole.status, 0) << whole.errors;
  ASSERT_THAT(curve_of(whole), HasSubstr("heads are enough for 0.9"));
  EXPECT_THAT(whole.output, Not(HasSubstr("tried before")));
  for (const int by : {SIGTERM, SIGKILL}) {
    const std::string to = fmt::format("cut{}", by);
    const auto process = start(short_words(to, echo));
    await_file(*process, to + "/share.json");
    process->signal(by);
    ASSERT_EQ(process->wait(), by == SIGTERM ? 75 : 128 + SIGKILL) << process->errors();
    ASSERT_FALSE(fs::exists(path(to + "/share.svg")));
    const Ended again = run_short(to, echo);
    ASSERT_EQ(again.status, 0) << again.errors;
    EXPECT_THAT(again.output, HasSubstr("tried before"));
    EXPECT_EQ(curve_of(again), curve_of(whole));
    EXPECT_EQ(file(to + "/share.svg"), file("whole/share.svg"));
    EXPECT_EQ(file(to + "/share.json").substr(file(to + "/share.json").find("\"tried\"")),
              file("whole/share.json").substr(file("whole/share.json").find("\"tried\"")));
  }
  // Another target takes the same points; another profile's are not taken.
  const Ended other = run_short("whole", {"1", "--method", "echo", "--copied-tokens", "60",
                                          "--seed", "5", "--target", "0.5"});
  ASSERT_EQ(other.status, 0) << other.errors;
  EXPECT_THAT(other.output, HasSubstr("tried before"));
  std::string points = file("whole/share.json");
  points.replace(points.find("gates_sha256") + 16, 4, "0000");
  replace_file(path("whole/share.json"), points);
  const Ended strange = run_short("whole", echo);
  ASSERT_EQ(strange.status, 0) << strange.errors;
  EXPECT_THAT(strange.output, Not(HasSubstr("tried before")));
  EXPECT_EQ(curve_of(strange), curve_of(whole));
}

// Gates of 0 and 1, as other methods publish them (PruLong and its like).
TEST_F(Identify, MasksAreProfiles) {
  fs::create_directory(path("mask"));
  replace_file(path("mask/full_attention_heads.tsv"),
               "0\t0\t0\t0\n0\t0\t0\t0\n0\t1\t0\t0\n0\t0\t1\t0\n");
  replace_file(path("mask/config.json"), R"({"sink_size": 128, "recent_size": 256})");
  const Ended asked =
      ChildProcess(folder_.path(), {"eval", "needle", "-m", example("model"), "--head-profile",
                                    path("mask"), "--lengths", "1K", "--no-progress"})
          .end();
  ASSERT_EQ(asked.status, 0) << asked.errors;
  EXPECT_THAT(asked.output, HasSubstr("2 of 16 KV heads keep every token"));
  EXPECT_THAT(asked.output, HasSubstr("11 of 11 answers right"));
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

// A copy of the example's model with one weight of the first layer's queries that is NaN.
void make_broken_model(const fs::path& to) {
  fs::copy(test::example_path("model"), to);
  const fs::path path = to / "model.safetensors";
  std::string weights = read_file(path, std::size_t{1} << 30);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, weights.data(), sizeof header_bytes);
  const Json header = parse_json(weights.substr(sizeof header_bytes, header_bytes), "header");
  const std::int64_t at = JsonField(header, "header")
                              .at("model.layers.0.self_attn.q_proj.weight")
                              .at("data_offsets")
                              .at(std::size_t{0})
                              .as_integer(0, std::int64_t{1} << 40);
  // As bf16 the second of two weights is NaN.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(weights.data() + sizeof header_bytes + header_bytes + at, &nan, sizeof nan);
  replace_file(path, weights);
}

// Its profile was all nan or all 0, "written", and took the place of a good one.
TEST_F(Identify, ABrokenModelReplacesNoProfile) {
  ASSERT_EQ(run_short("heads", {"1"}).status, 0);
  const std::string good = file("heads/full_attention_heads.tsv");
  const std::string config = file("heads/config.json");
  make_broken_model(path("broken"));
  for (const Words& more : std::vector<Words>{
           {"gates"}, {"gates", "--ranks", "2"}, {"echo"}, {"needle"}, {"repetition"}}) {
    Words words = {"1", "--overwrite", "--copied-tokens", "60", "-m", path("broken"), "--method"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_short("heads", words);
    EXPECT_EQ(ended.status, 5) << more.front() << ended.output << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr("are broken")) << more.front();
    EXPECT_EQ(file("heads/full_attention_heads.tsv"), good) << more.front();
    EXPECT_EQ(file("heads/config.json"), config) << more.front();
    EXPECT_FALSE(fs::exists(path("heads/identify_state.json"))) << more.front();
  }
}

TEST_F(Identify, RefusesBeforeTheStart) {
  for (const char* flag : {"--learning-rate", "--regularisation", "--target"}) {
    const Ended nan = run({"-o", path("x"), "--max-length", "2K", flag, "nan"});
    EXPECT_EQ(nan.status, 2) << flag;
    EXPECT_THAT(nan.errors, HasSubstr("nan is not a number from")) << flag;
  }
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
  const Ended gpu = run({"-o", path("x"), "--device", "cuda", "--max-length", "2K"});
  if (cuda::device_count() == 0) {
    EXPECT_EQ(gpu.status, 4);
    EXPECT_THAT(gpu.errors, HasSubstr("there is no GPU to use"));
  }
  replace_file(path("small.toml"), "[[node]]\nmemory = \"64 MiB\"\n");
  const Ended no_memory = run({"-o", path("x"), "--cluster", path("small.toml"), "--max-length",
                               "32K", "--lengths", "1", "--record-form", "codes"});
  EXPECT_EQ(no_memory.status, 3);
  EXPECT_THAT(no_memory.errors, HasSubstr("are missing"));
  EXPECT_THAT(no_memory.errors, HasSubstr("it fits with --max-length"));
  // Every part that is asked for is looked at, those that need forward passes only, too.
  for (const char* method : {"echo", "needle", "repetition"}) {
    const Ended finder =
        run({"-o", path("x"), "--cluster", path("small.toml"), "--max-length", "64K", "--lengths",
             "1", "--record-form", "codes", "--method", method, "--copied-tokens", "16K"});
    EXPECT_EQ(finder.status, 3) << method << finder.errors;
    EXPECT_THAT(finder.errors,
                HasSubstr(std::string(method) == "echo" ? "it fits with --copied-tokens"
                                                        : "it fits with --max-length"));
  }
  const Ended scored_int8 =
      run({"-o", path("x"), "--weights", "int8", "--max-length", "2K", "--method", "echo"});
  EXPECT_EQ(scored_int8.status, 2);
  EXPECT_THAT(scored_int8.errors, HasSubstr("--weights bf16"));
  // What --target asks about.
  const Ended no_place = run({"-o", path("x"), "--max-length", "140", "--min-length", "100",
                              "--record-form", "codes", "--records", "1", "--target", "0.9"});
  EXPECT_EQ(no_place.status, 2);
  EXPECT_THAT(no_place.errors, HasSubstr("--target asks about records in 140 tokens"));
  EXPECT_FALSE(fs::exists(path("x/config.json")));
  const Ended estimate =
      run({"--estimate", "--max-length", "4K", "--lengths", "1", "--compare", "--target", "0.9"});
  EXPECT_EQ(estimate.status, 0) << estimate.errors;
  for (const char* part : {"a step with the longest text", "echo and induction scores",
                           "needle scores", "repetition scores", "the distance"})
    EXPECT_THAT(estimate.output, HasSubstr(part));
}

}  // namespace
}  // namespace longhaul
