// `longhaul bench` as its users run it, on a shape of a few kilobytes: every output reads back, and
// wrong flags are told apart.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/json.h"
#include "tests/fault/child_process.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

using test::ChildProcess;
using test::Ended;
using test::Words;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string needle() { return test::example_path("model").string(); }

Ended run(const Words& more) {
  const test::TemporaryFolder folder;
  Words words = {"bench"};
  words.insert(words.end(), more.begin(), more.end());
  return ChildProcess(folder.path(), words).end();
}

Words small_run(const std::string& format) {
  return {"--shape", needle(),   "--layers", "2",  "-p",   "16",           "-n",
          "3",       "-pg",      "8,2",      "-d", "0,70", "-r",           "2",
          "-t",      "1",        "-b",       "10", "-ctk", "f32",          "--retrieval-ratio",
          "0.5",     "--recent", "20",       "-o", format, "--no-progress"};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(Bench, JsonHasLlamaBenchsFieldsAndTheBound) {
  const Ended ended = run(small_run("json"));
  ASSERT_EQ(ended.status, 0) << ended.errors;
  EXPECT_EQ(ended.errors, "");
  const Json json = parse_json(ended.output, "stdout");
  const JsonField rows(json, "stdout");
  ASSERT_EQ(rows.size(), 6U);
  std::vector<std::string> tests;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const JsonField row = rows.at(i);
    tests.push_back(row.at("test").as_string());
    EXPECT_EQ(row.at("model_filename").as_string(), "model bf16, 2/4 layers");
    EXPECT_EQ(row.at("samples_ns").size(), 2U);
    const double n_tokens = row.at("n_prompt").as_number() + row.at("n_gen").as_number();
    double sum = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      const double speed = row.at("samples_ts").at(s).as_number();
      sum += speed;
      EXPECT_NEAR(speed * row.at("samples_ns").at(s).as_number() / 1e9, n_tokens, 0.01 * n_tokens);
    }
    EXPECT_NEAR(row.at("avg_ts").as_number(), sum / 2, 1e-6 * sum);
    EXPECT_GT(row.at("bound_ts").as_number(), 0);
    EXPECT_NEAR(row.at("of_bound").as_number(),
                row.at("avg_ts").as_number() / row.at("bound_ts").as_number(), 1e-6);
    EXPECT_GT(row.at("attainable_gb_per_s").as_number(), 0);
    EXPECT_EQ(row.at("type_k").as_string(), "f32");
    EXPECT_EQ(row.at("n_batch").as_integer(0, 100), 10);
    EXPECT_EQ(row.at("n_retrieval_heads").as_integer(0, 8), 4);
    EXPECT_EQ(row.at("recent").as_integer(0, 100), 20);
  }
  EXPECT_THAT(tests,
              ElementsAre("pp16", "tg3", "pp8+tg2", "pp16 @ d70", "tg3 @ d70", "pp8+tg2 @ d70"));
}

TEST(Bench, MarkdownAndCsvHaveARowForEachTest) {
  const Ended markdown = run(small_run("md"));
  ASSERT_EQ(markdown.status, 0) << markdown.errors;
  const auto lines = lines_of(markdown.output);
  ASSERT_EQ(lines.size(), 10U) << markdown.output;
  EXPECT_THAT(lines[0], StartsWith("| model "));
  EXPECT_THAT(lines[0], HasSubstr("| chunk_len | type_k | type_v | retrieval heads |"));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), '|'), 13) << lines[i];
  }
  EXPECT_THAT(lines[5], HasSubstr("pp16 @ d70 |"));
  const Ended csv = run(small_run("csv"));
  ASSERT_EQ(csv.status, 0) << csv.errors;
  const auto rows = lines_of(csv.output);
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_THAT(rows[0], StartsWith("cpu_info,gpu_info,isa,model_filename,"));
  for (const std::string& row : rows) {
    // The model's name has a comma and is quoted.
    const std::int64_t extra = row == rows[0] ? 0 : 1;
    EXPECT_EQ(std::count(row.begin(), row.end(), ','), 36 + extra) << row;
  }
}

TEST(Bench, GeneratesForSeveralSequencesAndQuotes) {
  const Ended ended = run({"--shape", needle(), "-p", "0", "-n", "3", "--parallel", "1,4",
                           "--quote", "40", "-d", "0,300", "-r", "1", "-t", "1", "-o", "json"});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const Json json = parse_json(ended.output, "stdout");
  const JsonField rows(json, "stdout");
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows.at(3).at("test").as_string(), "tg3 x4 @ d300");
  EXPECT_EQ(rows.at(3).at("n_sequences").as_integer(1, 4), 4);
  EXPECT_EQ(rows.at(3).at("tokens_per_step").as_number(), 4);
  EXPECT_EQ(rows.at(4).at("test").as_string(), "quote40 @ d300");
  EXPECT_GT(rows.at(4).at("tokens_per_step").as_number(), 3);
}

TEST(Bench, TakesAModelFolder) {
  const Ended ended = run({"-m", needle(), "-p", "8", "-n", "0", "-r", "1", "-t", "1", "--clock",
                           "cpu", "-o", "jsonl"});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const Json json = parse_json(lines_of(ended.output).at(0), "stdout");
  EXPECT_EQ(JsonField(json, "stdout").at("clock").as_string(), "cpu");
  EXPECT_EQ(JsonField(json, "stdout").at("n_layers").as_integer(0, 9), 4);
}

TEST(Bench, KernelsShowSlopesOverLength) {
  const Words words = {"kernels", "-t", "1", "-r", "1", "--only", "streaming"};
  Words json_words = words;
  json_words.insert(json_words.end(), {"--max-length", "64K", "-o", "json"});
  const Ended ended = run(json_words);
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const Json json = parse_json(ended.output, "stdout");
  const JsonField rows(json, "stdout");
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows.at(1).at("kernel").as_string(), "attention/streaming_64K/d64/chunk_2K/f32");
  EXPECT_FALSE(rows.at(0).find("slope"));
  EXPECT_GT(rows.at(1).at("slope").as_number(), 0);
  EXPECT_EQ(rows.at(1).at("clock").as_string(), "cpu");
  Words text_words = words;
  text_words.insert(text_words.end(),
                    {"--max-length", "500", "--chunk-len", "300", "--no-progress"});
  const Ended text = run(text_words);
  EXPECT_THAT(text.output, HasSubstr("| attention/streaming_500/d128/chunk_300/bf16 "));
  EXPECT_THAT(text.output, HasSubstr("achieved |"));
}

TEST(Bench, SaysWhatIsWrong) {
  const std::vector<std::tuple<Words, std::string>> cases = {
      {Words(), "which model?"},
      {{"--shape", "llama-9"}, "known are tinyllama-1.1b"},
      {{"--shape", needle(), "-p", "x"}, "--n-prompt: 'x' is no number"},
      {{"--shape", needle(), "-pg", "5"}, "-pg: '5' is no pair"},
      {{"--shape", needle(), "-t", "2", "--clock", "cpu"}, "use -t 1"},
      {{"--shape", needle(), "--layers", "5"}, "5 layers of a model that has 4"},
      {{"--shape", needle(), "-ctv", "int3"}, "int3"},
      {{"kernels", "--only", "nothing like this"}, "no kernel's name contains"},
      {{"kernels", "--max-length", "1,2"}, "--max-length: '1,2' is no length"},
  };
  for (const auto& [words, message] : cases) {
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 2) << message;
    EXPECT_THAT(ended.errors, HasSubstr(message));
    EXPECT_EQ(ended.output, "");
  }
}

}  // namespace
}  // namespace longhaul
