// Cache methods as users ask for them: what commands say of each, that a job of several ranks or
// processes gives what one rank gives, and what is refused by name before anything starts.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <regex>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kMethods = {"dense",
                                           "streaming:sink=4,window=300",
                                           "window:window=300",
                                           "infinite:sink=4,cap=300,slide=50",
                                           "snapkv:capacity=300",
                                           "snapkv:capacity=300,after=prompt",
                                           "snapkv:capacity=150,group=each",
                                           "pyramidkv:capacity=300",
                                           "adakv:capacity=300",
                                           "tova:capacity=300",
                                           "tova:capacity=300,after=token",
                                           "h2o:capacity=300,recent=150",
                                           "quest:budget=256,page=16,dense=1",
                                           "razor:window=300",
                                           "fastgen",
                                           "fastgen:after=document",
                                           "keydiff:capacity=300"};

class CacheMethods : public RankedJob {
 protected:
  Ended end(const Words& words, const Words& launcher = {}) {
    return ChildProcess(folder(), words, launcher.empty() ? Words() : mpirun_variables(), launcher)
        .end();
  }
  std::string model() const { return example_path("model").string(); }
};

struct KvRow {
  double measured = 0;
  double predicted = 0;
  double everything = 0;
  std::string method;
};

// The table of --kv-report in what was printed.
std::vector<KvRow> kv_rows_in(const std::string& printed) {
  static const std::regex row(R"( +\d+ +([0-9.]+) (\w+) +([0-9.]+) (\w+) +([0-9.]+) (\w+)  (.*))");
  const auto bytes = [](const std::string& number, const std::string& unit) {
    const std::string units = "BKMG";
    return std::stod(number) * std::pow(1024.0, static_cast<double>(units.find(unit.front())));
  };
  std::vector<KvRow> rows;
  std::istringstream lines(printed.substr(printed.find("every token  method")));
  std::string line;
  std::getline(lines, line);
  for (std::smatch m; std::getline(lines, line) && std::regex_match(line, m, row);)
    rows.push_back({bytes(m[1], m[2]), bytes(m[3], m[4]), bytes(m[5], m[6]), m[7]});
  return rows;
}

TEST_F(CacheMethods, AReportOfCachesHasBytesMeasuredAndPredictedForEach) {
  const Words question = {"run",
                          "-m",
                          model(),
                          "-f",
                          (folder() / "0.txt").string(),
                          "-p",
                          "\nThe code",
                          "-n",
                          "8",
                          "--kv-report",
                          "-t",
                          "1",
                          "--no-chat",
                          "--no-progress"};
  for (const std::string& method : kMethods) {
    for (const char* n_ranks : {"1", "2"}) {
      SCOPED_TRACE(method + ", ranks: " + n_ranks);
      const Ended ended = end(joined(question, {"--policy", method, "--ranks", n_ranks}));
      ASSERT_EQ(ended.status, 0) << ended.errors;
      const std::vector<KvRow> rows = kv_rows_in(ended.errors);
      ASSERT_EQ(rows.size(), 1U) << ended.errors;
      EXPECT_THAT(rows[0].method, testing::StartsWith(method.substr(0, method.find(':'))));
      EXPECT_GT(rows[0].measured, 0);
      EXPECT_LE(rows[0].measured, rows[0].predicted * 1.01) << "printed with three digits";
    }
  }
  // Two methods beside each other: each has its own bytes.
  const Ended ended =
      end(joined(question, {"--head-profile", example_path("profile").string(), "--full-heads",
                            "snapkv:capacity=300", "--streaming-heads", "razor:window=200"}));
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const std::vector<KvRow> rows = kv_rows_in(ended.errors);
  ASSERT_EQ(rows.size(), 3U) << ended.errors;
  EXPECT_THAT(rows[0].method, testing::StartsWith("snapkv:capacity=300"));
  EXPECT_THAT(rows[1].method, testing::StartsWith("razor:sink=4,window=200"));
  EXPECT_EQ(rows[2].method, "all heads");
  for (const KvRow& row : rows) {
    EXPECT_GT(row.measured, 0);
    EXPECT_LE(row.measured, row.predicted * 1.01);
  }
  EXPECT_LT(rows[1].predicted, rows[1].everything);
  EXPECT_LE(rows[2].measured, (rows[0].measured + rows[1].measured) * 1.01);
}

// The rows of a table of methods, without times.
struct TableRow {
  std::string method;
  std::int64_t right = 0;
  double perplexity = 0;
};
std::vector<TableRow> table_in(const fs::path& path) {
  const Json json = parse_json(read_file(path, 1 << 26), path.string());
  const JsonField rows = JsonField(json, path.string()).at("rows");
  std::vector<TableRow> table;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const JsonField row = rows.at(i);
    table.push_back({row.at("method").as_string(), row.at("right").as_integer(0, 1 << 20),
                     row.at("perplexity").as_number()});
  }
  return table;
}

TEST_F(CacheMethods, TheirTableIsThatOfOneRankOnThreadsAndProcesses) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  Words words = {"eval",
                 "methods",
                 "-m",
                 model(),
                 "-t",
                 "1",
                 "--lengths",
                 "400",
                 "--text",
                 example_path("documents/harbour_log.txt").string(),
                 "--text-tokens",
                 "24",
                 "--weights",
                 "f32",
                 "--depths",
                 "10,90",
                 "--budgets",
                 "25",
                 "--no-progress",
                 "--method"};
  for (const std::string& method : kMethods) {
    const std::string with_budget = method.substr(0, method.find(':'));
    const bool keeps_its_words = method.find("after=") != std::string::npos ||
                                 method.find("group=") != std::string::npos ||
                                 method.find("dense=") != std::string::npos;
    words.push_back(keeps_its_words ? method : with_budget);
  }
  const auto table = [&](const std::string& name, const Words& more, const Words& launcher = {}) {
    const std::string prefix = (folder() / name).string();
    const Ended ended = end(joined(joined(words, {"-o", prefix}), more), launcher);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    return table_in(prefix + ".json");
  };
  const std::vector<TableRow> want = table("one", {});
  ASSERT_EQ(want.size(), kMethods.size());
  for (const auto& [name, got] : {std::pair("threads", table("threads", {"--ranks", "3"})),
                                  std::pair("processes", table("processes", {}, mpirun(2)))}) {
    ASSERT_EQ(got.size(), want.size()) << name;
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].method, want[i].method);
      EXPECT_EQ(got[i].right, want[i].right) << want[i].method << ", " << name;
      EXPECT_NEAR(got[i].perplexity / want[i].perplexity, 1, 1e-3)
          << want[i].method << ", " << name;
    }
  }
}

TEST_F(CacheMethods, ArePlannedAndMeasured) {
  for (const std::string& method : kMethods) {
    SCOPED_TRACE(method);
    const Ended plan = end({"plan", "-m", model(), "--ranks", "2", "--memory", "1G",
                            "--document-tokens", "20K", "--policy", method});
    EXPECT_EQ(plan.status, 0) << plan.errors;
    EXPECT_THAT(plan.output, HasSubstr("2 ranks in all"));
    const Ended bench = end({"bench", "--shape", model(), "-p", "0", "-n", "2", "-d", "400", "-r",
                             "1", "-t", "1", "--policy", method, "-o", "json", "--no-progress"});
    EXPECT_EQ(bench.status, 0) << bench.errors;
    EXPECT_THAT(bench.output, HasSubstr("avg_ts"));
  }
}

TEST_F(CacheMethods, WhatDoesNotGoTogetherIsRefusedByNameBeforeAnythingStarts) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--policy", "snapkv", "--cache-type-k", "kivi4"}, "chosen by their scores cannot be run"},
      {{"--policy", "quest", "--cache-type-v", "kivi2"}, "kivi2"},
      {{"--policy", "razor", "--cache-type-v", "kivi2"}, "kivi2"},
      {{"--policy", "infinite", "--cache-type-k", "kivi4"}, "a window that slides"},
      {{"--policy", "streaming", "--cache-type-k", "kivi4"}, "sinks at positions in the cache"},
      {{"--policy", "quest:page=48"}, "page=48 does not divide --block-size 64"},
      {{"--policy", "h2o", "--reproducible"}, "--reproducible: KV head 0 of layer 0"},
      {{"--policy", "h2o", "--draft-max", "4"}, "--draft-max: a wrong guess"},
      {{"--policy", "snapkv", "-n", "-1"}, "--max-tokens -1: an answer without end needs"},
      {{"--policy", "dmc"}, "config.json has no dmc_window_size"},
      {{"--policy", "snapkv:kernel=4"}, "kernel=4 must be an odd number"},
      {{"--policy", "snapkv", "--head-profile", example_path("profile").string()}, "--full-heads"},
      {{"--streaming-heads", "razor"}, "give --head-profile"},
      {{"--policy", "snapvk"}, "did you mean snapkv?"}};
  const fs::path output = folder() / "out.jsonl";
  for (const auto& [flags, named] : cases) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(flags, " ")));
    const Ended ended =
        end(joined({"run", "-m", model(), "-i", (folder() / "requests.jsonl").string(), "-o",
                    output.string(), "-t", "1", "--no-progress"},
                   flags));
    EXPECT_EQ(ended.status, 2) << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr(named));
    EXPECT_FALSE(fs::exists(output));
  }
}

// A request about a document of this job's folder, or about none.
std::string request_line(const std::string& id, bool is_chat, const std::string& more,
                         const std::string& document = R"("documents":[{"path":"short.txt"}],)") {
  return fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/{}","body":{{{}"max_tokens":12,{}}}}})"
      "\n",
      id, is_chat ? "chat/completions" : "completions", document, more);
}

// Several answers to a prompt, conversations that begin alike or have other system messages, and
// empty prompts once moved the place where a document was cut.
TEST_F(CacheMethods, DocumentsAreCutAtTheirOwnEndWhateverElseIsAsked) {
  const std::string text = read_file(example_path("documents/harbour_log.txt"), 1 << 20);
  replace_file(folder() / "short.txt", text.substr(0, 1500));
  replace_file(folder() / "chat.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
  const std::string question = R"(\nQuestion: What is the access code of maroon phoenix?\nAnswer:)";
  const std::string prompt = fmt::format(R"("prompt":"{}")", question);
  const std::string without = fmt::format(R"("prompt":{})", to_text(Json(text.substr(0, 700))));
  const auto chat = [](const std::string& said, const std::string& system = "") {
    return fmt::format(R"("messages":[{}{{"role":"user","content":"Please answer. {}"}}])", system,
                       said);
  };
  const std::string system = R"({"role":"system","content":"You are brief."},)";
  const std::string alone = request_line("text", false, prompt) +
                            request_line("bare", false, without, "") +
                            request_line("chat", true, chat("Which code?"));
  const std::string more = request_line("text 2", false, prompt + R"(,"n":2)") +
                           request_line("bare 2", false, without + R"(,"n":2)", "") +
                           request_line("chat 2", true, chat("Which code?") + R"(,"n":2)") +
                           request_line("chat 3", true, chat("Which codes are there?")) +
                           request_line("chat 4", true, chat("Which code?", system)) +
                           request_line("empty", false, R"("prompt":"")");
  replace_file(folder() / "alone.jsonl", alone);
  replace_file(folder() / "together.jsonl", alone + more);
  replace_file(folder() / "other.jsonl", request_line("chat 4", true, chat("Which code?", system)));
  const auto answers = [&](const std::string& name, const Words& flags) {
    const fs::path output = folder() / (name + ".out.jsonl");
    const Ended ended =
        end(joined({"run", "-m", model(), "-i", (folder() / (name + ".jsonl")).string(), "-o",
                    output.string(), "-t", "1", "--no-progress", "--overwrite", "--weights", "f32",
                    "--chat-template", (folder() / "chat.jinja").string()},
                   flags));
    EXPECT_EQ(ended.status, 0) << ended.errors;
    return choices_of(output);
  };
  const auto twice = [](std::string choices) {
    const std::string one = choices.substr(1, choices.size() - 2);
    std::string second = one;
    const std::string index = R"("index":0)";
    second.replace(second.find(index), index.size(), R"("index":1)");
    return "[" + one + "," + second + "]";
  };
  for (const char* method :
       {"snapkv:capacity=64,window=1", "pyramidkv:capacity=64", "adakv:capacity=64",
        "tova:capacity=64", "keydiff:capacity=64", "fastgen:after=document,threshold=0.5"}) {
    SCOPED_TRACE(method);
    const Words flags = {"--policy", method};
    auto want = answers("alone", flags);
    want.merge(answers("other", flags));
    for (const char* n_ranks : {"1", "2"}) {
      auto got = answers("together", joined(flags, {"--ranks", n_ranks}));
      ASSERT_EQ(got.size(), 9U);
      for (const auto& [id, choices] : want) EXPECT_EQ(got[id], choices) << id;
      for (const char* id : {"text", "bare", "chat"})
        EXPECT_EQ(got[id + std::string(" 2")], twice(want[id])) << id;
    }
  }
}

// The table of heads is part of what the results were made with.
TEST_F(CacheMethods, ResultsGoOnUnderTheSameMethodOnly) {
  const fs::path output = folder() / "out.jsonl";
  const auto run = [&](const std::string& policy) {
    return end({"run", "-m", model(), "-i", (folder() / "requests.jsonl").string(), "-o",
                output.string(), "-t", "1", "--no-progress", "-n", "1", "--policy", policy});
  };
  EXPECT_EQ(run("streaming:window=300").status, 0);
  EXPECT_THAT(read_file(folder() / "out.manifest.json", 1 << 20),
              AllOf(HasSubstr("\"heads\""), Not(HasSubstr("\"heads\":null"))));
  EXPECT_EQ(run("streaming:window=300").status, 0);
  const Ended other = run("streaming:window=301");
  EXPECT_EQ(other.status, 2) << other.errors;
  EXPECT_THAT(other.errors, HasSubstr("heads"));
}

}  // namespace
}  // namespace longhaul::test
