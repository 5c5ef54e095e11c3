// Conversations through the whole program: a random model with a published template and a tokenizer
// of its family; a file as written for vLLM's run-batch; standard input and output; bad lines.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "tests/fault/child_process.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/model_files.h"
#include "tests/unit/worker/tiny_models.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::Ended;
using test::Words;
using testing::HasSubstr;

Json stored(const std::string& name) {
  const fs::path path = test::source_path("tests/golden/chat/stored/" + name + ".json");
  return parse_json(read_file(path, 16 << 20), path.string());
}

class ChatRun : public testing::Test {
 protected:
  ChatRun() {
    ModelSpec spec = test::tiny_spec();
    spec.vocab_size = 1505;  // the tokenizer's
    spec.max_seq_len = 16384;
    fs::create_directory(model());
    test::write_model(model(), {.spec = spec});
    const auto golden = [](const std::string& file) {
      return read_file(test::source_path("tests/golden/" + file), 1 << 24);
    };
    replace_file(model() / "tokenizer.json", golden("tokenizer/stored/qwen2.json"));
    replace_file(model() / "chat_template.jinja", golden("chat/templates/qwen2.5.jinja"));
  }

  fs::path model() const { return folder_.path() / "model"; }
  fs::path file(const std::string& name) const { return folder_.path() / name; }

  Ended run(const Words& more, const Words& launcher = {}) const {
    Words words = {"run", "-m", model().string(), "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return ChildProcess(folder_.path(), words, {}, launcher).end();
  }
  // With a file as standard input.
  static Words fed_with(const fs::path& input) {
    return {"sh", "-c", fmt::format("exec \"$0\" \"$@\" <'{}'", input.string())};
  }
  // custom_id -> line
  static std::map<std::string, Json> lines_of(const std::string& text) {
    std::map<std::string, Json> lines;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      Json line = parse_json(text.substr(at, end - at), "results");
      const std::string id = JsonField(line, "results").at("custom_id").as_string();
      EXPECT_TRUE(lines.emplace(id, std::move(line)).second) << id;
      at = end + 1;
    }
    return lines;
  }
  std::map<std::string, Json> results(const std::string& name = "out.jsonl") const {
    return lines_of(read_file(file(name), 1 << 24));
  }
  static JsonField body_of(const Json& line) {
    return JsonField(line, "results").at("response").at("body");
  }
  static std::vector<std::string> texts_of(const Json& line) {
    std::vector<std::string> texts;
    const JsonField choices = body_of(line).at("choices");
    for (std::size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(choices.at(i).at("index").as_integer(0, 1000), static_cast<std::int64_t>(i));
      const auto message = choices.at(i).find("message");
      texts.push_back((message ? message->at("content") : choices.at(i).at("text")).as_string());
    }
    return texts;
  }

  test::TemporaryFolder folder_;
};

std::string chat_line(std::string_view id, std::string_view fields) {
  return fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/chat/completions","body":{{{}}}}})"
      "\n",
      id, fields);
}

// As many tokens as transformers makes of each conversation, and what they share computed once.
TEST_F(ChatRun, TenQuestionsOnADocumentReadItOnce) {
  const Json shared = stored("shared_document");
  const JsonField golden(shared, "shared_document");
  std::string lines;
  for (std::size_t i = 0; i < 10; ++i) {
    lines += chat_line(fmt::format("q{}", i),
                       fmt::format(R"("documents":[{{"text":{}}}],"max_tokens":2,)"
                                   R"("messages":[{{"role":"user","content":{}}}])",
                                   to_text(golden.at("document").json()),
                                   to_text(golden.at("questions").at(i).json())));
  }
  replace_file(file("in.jsonl"), lines);
  const Ended ended = run({"-i", file("in.jsonl").string(), "-o", file("out.jsonl").string()});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const std::size_t n_shared = golden.at("shared_ids").size();
  std::size_t n_prefilled = n_shared;
  std::size_t n_cached = 0;
  for (const auto& [id, line] : results()) {
    const std::size_t n_rest = golden.at("rests").at(std::stoul(id.substr(1))).size();
    n_prefilled += n_rest;
    const JsonField usage = body_of(line).at("usage");
    EXPECT_EQ(static_cast<std::size_t>(usage.at("prompt_tokens").as_integer(0, 1 << 20)),
              n_shared + n_rest);
    n_cached += static_cast<std::size_t>(
        usage.at("prompt_tokens_details").at("cached_tokens").as_integer(0, 1 << 20));
  }
  EXPECT_EQ(n_cached, 9 * n_shared);
  EXPECT_THAT(ended.errors, HasSubstr(fmt::format("prefill {} tokens", n_prefilled)));
}

// Several answers, penalties and biases, greedy and drawn, in a given form and in none: the same on
// any number of ranks, and choice 0 is what n = 1 gives.
TEST_F(ChatRun, AnswersDoNotDependOnTheRanks) {
  const std::string ask =
      R"("messages":[{"role":"user","content":"Say something"}],"max_tokens":12,)";
  const std::string drawn = ask + R"("temperature":1,"seed":5,)";
  const std::string rules =
      R"("repetition_penalty":1.3,"presence_penalty":0.5,"frequency_penalty":0.2,)"
      R"("logit_bias":{"20":-100,"30":2},"min_tokens":3)";
  replace_file(file("in.jsonl"),
               chat_line("three", drawn + R"("n":3)") + chat_line("one", drawn + R"("n":1)") +
                   chat_line("rules", drawn + rules + R"(,"n":2)") +
                   chat_line("greedy", ask + rules) +
                   chat_line("best", drawn + R"("n":1,"best_of":3)") +
                   chat_line("form", drawn + rules + R"(,"n":2,"guided_regex":"[a-z ]{4,9}")") +
                   R"({"custom_id":"list","method":"POST","url":"/v1/completions","body":)"
                   R"({"prompt":["one","two"],"n":2,"temperature":1,"max_tokens":6}})"
                   "\n");
  const auto texts = [&](const Words& more) {
    Words words = {"-i", file("in.jsonl").string(), "-o", file("out.jsonl").string(),
                   "--overwrite"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    std::map<std::string, std::vector<std::string>> all;
    for (const auto& [id, line] : results()) all[id] = texts_of(line);
    return all;
  };
  const auto alone = texts({"--weights", "f32"});
  EXPECT_EQ(texts({"--weights", "f32", "--ranks", "3"}), alone);
  EXPECT_EQ(texts({"--weights", "f32", "--parallel", "1", "--chunk-len", "7"}), alone);
  EXPECT_EQ(texts({"--weights", "f32", "--parallel", "1", "--ranks", "2"}), alone);
  EXPECT_EQ(alone.at("three").size(), 3U);
  EXPECT_EQ(alone.at("three").at(0), alone.at("one").at(0));
  EXPECT_NE(alone.at("three").at(1), alone.at("three").at(0));
  EXPECT_THAT(alone.at("three"), testing::Contains(alone.at("best").at(0)));
  EXPECT_EQ(alone.at("list").size(), 4U);
  for (const std::string& text : alone.at("form"))
    EXPECT_THAT(text, testing::ContainsRegex("^[a-z ]*$"));
}

// The first two lines are those of vLLM's openai_example_batch.jsonl (Apache-2.0); the third has
// the fields of its body, with values that ask for nothing and others.
TEST_F(ChatRun, AFileForVllmsRunBatchRunsUnchanged) {
  const std::string line =
      R"({"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": )"
      R"({"model": "meta-llama/Meta-Llama-3-8B-Instruct", "messages": [{"role": "system", )"
      R"("content": "You are a helpful assistant."},{"role": "user", "content": "Hello world!"}],)"
      R"("max_completion_tokens": 1000}})";
  std::string second = line;
  second.replace(second.find("request-1"), 9, "request-2");
  second.replace(second.find("a helpful"), 9, "an unhelpful");
  const std::string fields =
      R"("model":"any","messages":[{"role":"user","content":"Hi","name":null}],"max_tokens":8,)"
      R"("temperature":0.8,"top_p":0.95,"top_k":40,"min_p":0.02,"repetition_penalty":1.1,)"
      R"("presence_penalty":0.2,"frequency_penalty":0.1,"logit_bias":{"5":-100},"min_tokens":4,)"
      R"("stop_token_ids":[3],"stop":[],"seed":7,"n":2,"logprobs":true,"top_logprobs":2,)"
      R"("ignore_eos":true,"best_of":null,"use_beam_search":false,"length_penalty":1.0,)"
      R"("skip_special_tokens":true,"spaces_between_special_tokens":true,)"
      R"("include_stop_str_in_output":false,"add_special_tokens":false,"echo":false,)"
      R"("truncate_prompt_tokens":null,"prompt_logprobs":null,"allowed_token_ids":null,)"
      R"("bad_words":[],"add_generation_prompt":true,"continue_final_message":false,)"
      R"("documents":null,"chat_template":null,"chat_template_kwargs":null,"guided_json":null,)"
      R"("guided_decoding_backend":null,"response_format":{"type":"text"},"priority":0,)"
      R"("logits_processors":null,"stream":false,"stream_options":null,"tool_choice":"none",)"
      R"("tools":null,"user":"u","return_tokens_as_token_ids":false,"mm_processor_kwargs":null,)"
      R"("kv_transfer_params":null,"early_stopping":false,"request_id":"x","cache_salt":null)";
  replace_file(file("in.jsonl"), line + "\n" + second + "\n" + chat_line("request-3", fields));
  const Ended ended = run({"-i", file("in.jsonl").string(), "-o", file("out.jsonl").string()});
  ASSERT_EQ(ended.status, 0) << ended.errors;
  const auto lines = results();
  ASSERT_EQ(lines.size(), 3U);
  for (const auto& [id, json] : lines) {
    const JsonField root(json, id);
    EXPECT_FALSE(root.at("id").as_string().empty());
    EXPECT_TRUE(root.at("error").json().is_null());
    const JsonField response = root.at("response");
    EXPECT_EQ(response.at("status_code").as_integer(0, 999), 200);
    EXPECT_FALSE(response.at("request_id").as_string().empty());
    const JsonField body = response.at("body");
    EXPECT_EQ(body.at("object").as_string(), "chat.completion");
    for (const char* field : {"id", "created", "model", "usage"}) body.at(field);
    for (const char* field : {"prompt_tokens", "completion_tokens", "total_tokens"})
      body.at("usage").at(field);
    const JsonField choices = body.at("choices");
    EXPECT_EQ(choices.size(), id == "request-3" ? 2U : 1U);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(choices.at(i).at("message").at("role").as_string(), "assistant");
      for (const char* field : {"index", "logprobs", "finish_reason", "stop_reason"})
        choices.at(i).at(field);
    }
  }
}

TEST_F(ChatRun, ReadsStandardInputAndWritesStandardOutput) {
  replace_file(file("in.jsonl"),
               chat_line("a", R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":2)") +
                   chat_line("b", R"("messages":[{"role":"user","content":"Hi"}],)"
                                  R"("max_tokens":90000000)"));
  const Ended ended = run({"-i", "-", "-o", "-"}, fed_with(file("in.jsonl")));
  EXPECT_EQ(ended.status, 1) << ended.errors;
  const auto lines = lines_of(ended.output);  // nothing else is there
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(texts_of(lines.at("a")).size(), 1U);
  EXPECT_EQ(JsonField(lines.at("b"), "b").at("error").at("code").as_string(),
            "context_length_exceeded");
  EXPECT_THAT(ended.errors, HasSubstr("longhaul: 1 done, 1 failed\n"));
  EXPECT_FALSE(fs::exists("-"));
  const Ended kept = run({"-i", "-", "-o", file("out.jsonl").string()}, fed_with(file("in.jsonl")));
  EXPECT_EQ(kept.status, 1);
  EXPECT_EQ(texts_of(results().at("a")), texts_of(lines.at("a")));
}

// A connection that broke was once taken for the end of the requests.
TEST_F(ChatRun, StandardInputThatCannotBeReadIsNoEnd) {
  for (const Words& words : {Words{"-i", "-", "-o", "-"}, Words{"-f", "-", "-p", "What?"}}) {
    const Ended ended = run(words, fed_with(folder_.path()));
    EXPECT_EQ(ended.status, 4) << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr("cannot read standard input"));
  }
}

TEST_F(ChatRun, ASignalEndsTheWaitForStandardInput) {
  const fs::path pipe = file("pipe");  // open at both ends, so that there is no end
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ChildProcess process(folder_.path(), {"run", "-m", model().string(), "-i", "-", "-o", "-"}, {},
                       {"sh", "-c", fmt::format("exec \"$0\" \"$@\" <>'{}'", pipe.string())});
  const int end = ::open(pipe.c_str(), O_RDWR);
  ASSERT_EQ(::write(end, "\n", 1), 1);
  // Once it has read that, it waits for more.
  for (int n_left = 1; n_left > 0 && process.running(); ::ioctl(end, FIONREAD, &n_left))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::close(end);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << process.errors();
}

TEST_F(ChatRun, ABrokenTemplateIsNotPassedOverInSilence) {
  const fs::path path = model() / "chat_template.jinja";
  const std::string text = read_file(path, 1 << 20);
  const Words words = {"-p", "Hi", "-n", "2", "-q"};
  const std::string answer = run(words).output;
  replace_file(path, "\xef\xbb\xbf" + text);
  EXPECT_EQ(run(words).output, answer) << "a byte order mark is no text";
  replace_file(path, "{% if");
  const Ended broken = run(words);
  EXPECT_EQ(broken.status, 5);
  EXPECT_THAT(broken.errors, HasSubstr("or --no-chat for the text as it is"));
  EXPECT_EQ(run({"-p", "Hi", "-n", "2", "-q", "--no-chat"}).status, 0);
}

TEST_F(ChatRun, ASeedThatWasDrawnStaysWhereTheRunGoesOn) {
  const std::string line =
      chat_line("a", R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":2)");
  replace_file(file("in.jsonl"), line);
  const Words words = {"-i", file("in.jsonl").string(), "-o", file("out.jsonl").string(), "--seed",
                       "-1"};
  ASSERT_EQ(run(words).status, 0);
  replace_file(file("in.jsonl"), line + chat_line("b", R"("messages":[{"role":"user",)"
                                                       R"("content":"Hi"}],"max_tokens":2)"));
  const Ended second = run(words);
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(results().size(), 2U);
}

TEST_F(ChatRun, OverwriteLosesNothingWhereTheRunIsRefused) {
  replace_file(file("in.jsonl"),
               chat_line("a", R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":2)"));
  Words words = {"-i", file("in.jsonl").string(), "-o", file("out.jsonl").string()};
  ASSERT_EQ(run(words).status, 0);
  const std::string before = read_file(file("out.jsonl"), 1 << 20);
  words.push_back("--overwrite");
  Words refused = words;
  refused.insert(refused.end(), {"--ranks", "2", "--stages", "2", "--replicas", "2"});
  EXPECT_EQ(run(refused).status, 2);
  EXPECT_EQ(read_file(file("out.jsonl"), 1 << 20), before);
  EXPECT_EQ(run(words).status, 0);
  EXPECT_EQ(results().size(), 1U);
}

TEST_F(ChatRun, BadLinesCanBeSkipped) {
  const std::string good =
      chat_line("a", R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":2)");
  const std::string gone = chat_line("c", R"("messages":[{"role":"user","content":"Hi"}],)"
                                          R"("documents":[{"path":"gone.txt"}])");
  replace_file(file("in.jsonl"), good + "not json\n" + good + gone);
  const Words words = {"-i", file("in.jsonl").string(), "-o", file("out.jsonl").string()};
  EXPECT_EQ(run(words).status, 5);
  EXPECT_FALSE(fs::exists(file("out.jsonl")));
  Words skipping = words;
  skipping.push_back("--skip-bad-lines");
  const std::string errors = file("out.errors.jsonl").string();
  for (int i = 0; i < 2; ++i) {  // the second run finds everything done
    const Ended ended = run(skipping);
    EXPECT_EQ(ended.status, 1) << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr("3 bad lines in "));
    EXPECT_THAT(ended.errors, HasSubstr("longhaul: 1 done in "));
    EXPECT_THAT(ended.errors, HasSubstr(", 3 bad lines skipped: see "));
    EXPECT_EQ(results().size(), 1U);
    const std::string text = read_file(errors, 1 << 20);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
    EXPECT_THAT(text, HasSubstr("\"custom_id\":null,\"response\":null,\"error\":{\"code\":"
                                "\"bad_line\",\"message\":\"byte 2: syntax error"));
    EXPECT_THAT(text, HasSubstr("already used in line 1\",\"line\":3}"));
    EXPECT_THAT(text, HasSubstr("\"custom_id\":\"c\""));
  }
  replace_file(file("gone.txt"), "It is there now.");
  replace_file(file("in.jsonl"), good + gone);
  EXPECT_EQ(run(skipping).status, 0);
  EXPECT_EQ(results().size(), 2U);
  EXPECT_EQ(read_file(errors, 1 << 20), "");
  replace_file(file("in.jsonl"), "not json\n");
  const Ended none = run({"-i", file("in.jsonl").string(), "-o", "-", "--skip-bad-lines"});
  EXPECT_EQ(none.status, 5);
  EXPECT_THAT(none.errors, HasSubstr("1 problem in "));
}

}  // namespace
}  // namespace longhaul
