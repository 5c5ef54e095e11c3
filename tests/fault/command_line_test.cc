// What users get for wrong flags, files and fields: exit status and a message that says what is
// wrong, where, and what to do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "build_info.h"
#include "tests/fault/child_process.h"
#include "tests/fault/mpirun.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using testing::HasSubstr;

std::string model() { return test::example_path("model").string(); }

// Requests files by name, written beside the output for every case.
std::string request_line(std::string_view id, std::string_view body) {
  return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{}}})"
                     "\n",
                     id, body);
}

void write_files(const fs::path& folder) {
  replace_file(folder / "good.jsonl", request_line("a", R"({"prompt":"Hi","max_tokens":2})"));
  replace_file(folder / "bad.jsonl",
               request_line("a", R"({"prompt":"Hi"})") + "not json\n" +
                   request_line("a", R"({"prompt":"Hi"})") +
                   request_line("b", R"({"prompt":"Hi","documents":[{"path":"gone.txt"}]})"));
  replace_file(folder / "chat.jsonl",
               R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions",)"
               R"("body":{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}})"
               "\n");
  replace_file(folder / "chat.jinja",
               "{% for m in messages %}{{ m.role + ': ' + m.content }}\n{% endfor %}"
               "{{ raise_exception('no') if not add_generation_prompt }}assistant:");
  replace_file(folder / "broken.jinja", "{% for m in messages %}");
  replace_file(folder / "unread.jinja", "{% include 'other.jinja' %}");
  replace_file(folder / "empty.jsonl", "\n");
  replace_file(folder / "long.jsonl",
               request_line("a", R"({"prompt":"Hi","max_tokens":2})") +
                   request_line("b", R"({"prompt":"Hi","max_tokens":90000000})"));
  replace_file(folder / "foreign.jsonl", "precious\n");
  replace_file(folder / "text.txt", "A short text.");
  replace_file(folder / "paper.pdf", "%PDF-1.7 \xff\xfe");
  // The example's heads, said to be of other weights.
  fs::create_directory(folder / "strange");
  fs::copy(test::example_path("profile/full_attention_heads.tsv"), folder / "strange");
  replace_file(folder / "strange/config.json",
               fmt::format(R"({{"sink_size":16,"recent_size":128,"weights_sha256":"{}"}})",
                           std::string(64, '0')));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("loop", folder / "loop");
  replace_file(folder / "nothing.txt", "");
  replace_file(folder / "wrong.sha256", std::string(64, '0') + "  model.safetensors\n");
  for (const auto& [name, field] :
       {std::pair{"bare", R"("use_cache":true)"}, std::pair{"misspelt", R"("rmpe_theta":1e6)"},
        std::pair{"awq", R"("quantization_config":)"
                         R"({"quant_method":"awq","bits":4})"}}) {
    fs::create_directory(folder / name);
    replace_file(folder / name / "config.json",
                 fmt::format(R"({{"model_type":"llama","num_hidden_layers":2,{}}})", field));
  }
}

struct Case {
  std::string name;
  std::vector<std::string> arguments;  // MODEL and DIR are replaced
  int status;
  std::string message;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class CommandLine : public testing::TestWithParam<Case> {};

TEST_P(CommandLine, SaysWhatIsWrong) {
  const test::TemporaryFolder folder;
  write_files(folder.path());
  std::vector<std::string> arguments = GetParam().arguments;
  for (std::string& argument : arguments) {
    if (argument == "MODEL") argument = model();
    if (argument.starts_with("DIR/")) argument = (folder.path() / argument.substr(4)).string();
  }
  ChildProcess process(folder.path(), arguments);
  EXPECT_EQ(process.wait(), GetParam().status) << process.errors();
  EXPECT_THAT(process.output() + process.errors(), HasSubstr(GetParam().message));
  EXPECT_EQ(read_file(folder.path() / "foreign.jsonl", 100), "precious\n");
}

using test::Words;
Words batch(const std::string& input, const Words& more = {}) {
  Words words = {"run", "-m", "MODEL", "-i", "DIR/" + input, "-o", "DIR/out.jsonl"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Words question(const Words& more) {
  Words words = {"run", "-m", "MODEL", "-p", "Hi", "-n", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, CommandLine,
    testing::Values(
        Case{"Nothing", {}, 2, "A subcommand is required"},
        Case{"Version", {"--version"}, 0, "longhaul 0."},
        Case{"Help", {"run", "--help"}, 0, "Examples:"},
        Case{"UnknownFlag", question({"--nonsense"}), 2, "--nonsense"},
        Case{"NearlyAFlag", question({"--temprature", "0"}), 2, "did you mean --temperature?"},
        Case{"UnknownFlagBeforeWhatIsMissing",
             {"run", "--modle", "M", "-p", "Hi"},
             2,
             "--modle is not known; did you mean --model?"},
        Case{"UnexpectedWordsInTheirOrder",
             {"run", "-m", "MODEL", "what", "is"},
             2,
             "not expected: what is"},
        Case{"LastValueWins", question({"-n", "3"}), 0, "prompt tokens, 3 new ones"},
        Case{"ParallelOfLlamaCpp", question({"-np", "0"}), 2, "--parallel: "},
        Case{"DraftModelOfLlamaCpp", question({"-md", "DIR/none"}), 5, "there is no such folder"},
        Case{"BatchThreadsOfLlamaCpp", question({"-tb", "4"}), 2, "-tb: -t gives the threads"},
        Case{"FlagOfLlamaCpp", question({"-ngl", "99"}), 2, "-ngl: the plan spreads layers"},
        Case{"FlagOfVllm", question({"--kv-cache-dtype=fp8"}), 2, "are --ctk and --ctv"},
        Case{"TextLikeAForeignFlag", {"run", "-p", "-ngl"}, 2, "--model is required"},
        Case{"NearlyACommand", {"rnu"}, 2, "did you mean run?"},
        Case{"NoModel", {"run", "-p", "Hi"}, 2, "--model is required"},
        Case{"NothingToDo", {"run", "-m", "MODEL"}, 2, "nothing to do: give -i"},
        Case{"TwoModes", batch("good.jsonl", {"-p", "Hi"}), 2, "use one or the other"},
        Case{"NoOutput", {"run", "-m", "MODEL", "-i", "DIR/good.jsonl"}, 2, "-o results.jsonl"},
        Case{"NoInput", {"run", "-m", "MODEL", "-o", "DIR/x"}, 2, "-i requests.jsonl"},
        Case{"OverwriteAndRetry", batch("good.jsonl", {"--overwrite", "--retry-errors"}), 2,
             "use one of them"},
        Case{"SystemMessageOfABatch", batch("good.jsonl", {"--sys", "Be brief."}), 2,
             "--sys and --no-chat are for -p and -f"},
        Case{"NoChatOfABatch", batch("good.jsonl", {"--no-chat"}), 2,
             "--sys and --no-chat are for -p and -f"},
        Case{"TokenFileWithoutStatus", question({"--status-token-file", "DIR/text.txt"}), 2,
             "--status-token-file is for --status"},
        Case{"DraftContextWithoutADraftModel", question({"--draft-context", "64"}), 2,
             "--draft-context requires --draft-model"},
        Case{"LookupWithoutGuesses", question({"--prompt-lookup-min", "3"}), 2,
             "give --draft-max N too"},
        Case{"CountInThousands", question({"-c", "8KB"}), 0, "context 8000 tokens"},
        Case{"CountInBinaryUnits", question({"-c", "8KiB"}), 0, "context 8192 tokens"},
        Case{"CountOfNoUnit", question({"-c", "8X"}), 2,
             "'8X' is not a count; write 4096, 128K or 1M"},
        Case{"ContextOfTheModel", question({"-c", "0"}), 0, "context 1048576 tokens"},
        Case{"NegativeAnswer", question({"-n", "-5"}), 2, "-5 is neither a count of tokens nor -1"},
        Case{"TopKOfVllm", question({"--top-k", "-1"}), 0, "prompt tokens, 2 new ones"},
        Case{"SeedTooLarge", question({"-s", "18446744073709551616"}), 2,
             "18446744073709551616 is not a whole number from -1 to"},
        Case{"SeedTooLargeToEvaluate",
             {"eval", "needle", "-m", "MODEL", "--seed", "18446744073709551616"},
             2,
             "18446744073709551616 is not a whole number from 0 to"},
        Case{"ZeroChunk", question({"--chunk-len", "0"}), 2, "--chunk-len"},
        Case{"ChunkNoNumber", question({"-b", "many"}), 2, "--chunk-len"},
        Case{"CacheType", question({"-ctk", "q5_1"}), 2, "--cache-type-k"},
        Case{"TopP", question({"--top-p", "1.5"}), 2, "top_p is 1.5; it must lie in [0, 1]"},
        Case{"KvLimit", question({"--kv-limit", "much"}), 2, "'much' is not a size"},
        Case{"StopAtNothing", question({"--stop", ""}), 2, "an empty stop string"},
        Case{"MemoryWithoutAUnit",
             {"plan", "-m", "MODEL", "--memory", "64"},
             2,
             "is 64 B: too little for any rank; did you mean 64G?"},
        Case{"NoMemory",
             {"plan", "-m", "MODEL", "--memory", "0"},
             2,
             "is 0 B: too little for any rank\n"},
        Case{"DocumentInThousands",
             {"plan", "-m", "MODEL", "--ranks", "1", "--memory", "1G", "--document-tokens", "8KB"},
             0,
             "documents of 8000 tokens"},
        Case{"LogLevel", question({"--log-level", "loud"}), 2, "log level 'loud'"},
        Case{"TwoWindowsInALayerOfARing",
             question({"--head-profile", test::example_path("profile").string(), "--full-heads",
                       "window:window=8", "--ranks", "2", "--replicas", "1"}),
             2, "all windows of a layer must be equal"},
        Case{"TwoWindowsInALayerOfAPlan",
             {"plan", "-m", "MODEL", "--head-profile", test::example_path("profile").string(),
              "--full-heads", "window:window=8", "--ranks", "3", "--memory", "1G"},
             2,
             "all windows of a layer must be equal"},
        Case{"CheckpointsWithoutAFolder", question({"--checkpoint-every", "2"}), 2,
             "--checkpoint-every needs --checkpoint-dir"},
        Case{"RatioAlone", question({"--retrieval-ratio", "0.5"}), 2,
             "--retrieval-ratio needs --head-profile"},
        Case{"Works", question({"--ctk", "f32", "-ctv", "bf16"}), 0, "prompt tokens, 2 new ones"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Files, CommandLine,
    testing::Values(
        Case{"ModelMissing", {"run", "-m", "DIR/none", "-p", "Hi"}, 5, "no such folder"},
        Case{"ModelIsAFile", {"run", "-m", "DIR/text.txt", "-p", "Hi"}, 5, "is a file"},
        Case{"InputMissing", batch("none.jsonl"), 5, "none.jsonl: No such file"},
        Case{"InputEmpty", batch("empty.jsonl"), 5, "holds no requests"},
        Case{"DocumentMissing", question({"-f", "DIR/gone.txt"}), 5, "gone.txt: No such file"},
        Case{"OutputFolder",
             {"run", "-m", "MODEL", "-i", "DIR/good.jsonl", "-o", "DIR/none/out.jsonl"},
             2,
             "there is no folder"},
        Case{"OutputIsInput",
             {"run", "-m", "MODEL", "-i", "DIR/good.jsonl", "-o", "DIR/good.jsonl"},
             2,
             "written over the requests"},
        Case{"OutputIsForeign",
             {"run", "-m", "MODEL", "-i", "DIR/good.jsonl", "-o", "DIR/foreign.jsonl"},
             2,
             "choose another output"},
        Case{"ProfileMissing", question({"--head-profile", "DIR/none"}), 5,
             "a profile is a folder"},
        Case{"ProfileOfOtherWeights", question({"--head-profile", "DIR/strange"}), 2,
             "made for other weights"},
        Case{"ProfileOfOtherWeightsInBench",
             {"bench", "-m", "MODEL", "-p", "1", "-n", "0", "--head-profile", "DIR/strange"},
             2,
             "made for other weights"},
        Case{"ProfileOfOtherWeightsInEval",
             {"eval", "needle", "-m", "MODEL", "--head-profile", "DIR/strange"},
             2,
             "made for other weights"},
        Case{"DocumentIsNoText", question({"-f", "DIR/paper.pdf"}), 5, "looks like a PDF file"},
        Case{"DocumentIsTakenAsText", question({"-f", "DIR/paper.pdf", "--lossy-text"}), 0,
             "prompt tokens"},
        Case{"DocumentIsEmpty", question({"-f", "DIR/nothing.txt"}), 0, "nothing.txt is empty"},
        Case{"DocumentIsADevice", question({"-f", "/dev/zero"}), 5, "it is a device"},
        Case{"OutputIsADevice",
             {"run", "-m", "MODEL", "-i", "DIR/good.jsonl", "-o", "/dev/full"},
             2,
             "cannot write to /dev/full: it is a device"},
        Case{"OutputIsAPipe",
             {"run", "-m", "MODEL", "-i", "DIR/good.jsonl", "-o", "DIR/pipe"},
             2,
             "it is a pipe"},
        Case{"ReportIsAPipe", question({"--report", "DIR/pipe"}), 2, "pipe: it is a pipe"},
        Case{"ReportHasNoFolder", question({"--report", "DIR/none/report.json"}), 2,
             "there is no folder"},
        Case{"LogFileIsAPipe", question({"--log-file", "DIR/pipe"}), 2, "nobody reads this pipe"},
        Case{"PlanIsAPipe",
             {"plan", "-m", "MODEL", "--ranks", "2", "--memory", "1G", "--json", "DIR/pipe"},
             2,
             "it is a pipe"},
        Case{"ChecksumsArePiped", {"checksum", "-m", "MODEL", "-o", "DIR/pipe"}, 2, "it is a pipe"},
        Case{"TraceOfOneRank", question({"--trace", "DIR/trace.json"}), 0,
             "one rank alone passes nothing on"},
        Case{"ClusterOfOneRank", question({"--save-cluster", "DIR/cluster.toml"}), 0,
             "one rank alone follows no plan"},
        Case{"HistoryOfOneRank", question({"--history", "keys"}), 0,
             "--history has no effect: one rank alone passes nothing on"},
        Case{"PlanOfOneRank", question({"--verbose"}), 0, "one rank alone: there is no plan"},
        Case{"TimesOfOneRank", question({"--verbose"}), 0, "seconds; bytes sent"},
        Case{"OutputIsALoopOfLinks",
             {"run", "-m", "MODEL", "-i", "DIR/good.jsonl", "-o", "DIR/loop"},
             2,
             "Too many levels of symbolic links"},
        Case{
            "NoTokenizer", {"run", "-m", "DIR/bare", "-p", "Hi"}, 5, "tokenizer.json is not there"},
        Case{"Quantised",
             {"run", "-m", "DIR/awq", "-p", "Hi"},
             5,
             "the weights are AWQ with 4 bits"},
        Case{"Misspelt", {"run", "-m", "DIR/misspelt", "-p", "Hi"}, 5, "did you mean rope_theta"},
        Case{"ChatTemplateMissing", question({"--chat-template", "DIR/none.jinja"}), 5,
             "none.jinja: No such file"},
        Case{"ChecksumsMissing", question({"--verify-weights", "--checksums", "DIR/none.sha256"}),
             5, "none.sha256: No such file"},
        Case{"ReportOfNoResults",
             {"report", "-o", "DIR/report", "--results", "DIR/none.jsonl"},
             5,
             "there is no none.manifest.json"},
        Case{"ReportAsZip", {"report", "-o", "DIR/report.zip"}, 2, "no .zip is written"},
        Case{"ReportOfNoLogs",
             {"report", "-o", "DIR/report", "--log-dir", "DIR/none"},
             5,
             "there is no such folder"},
        Case{"NoChecksums", question({"--verify-weights"}), 2, "longhaul checksum -m"},
        Case{"WrongChecksums", question({"--checksums", "DIR/wrong.sha256"}), 5,
             "model.safetensors: SHA-256 should be"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Requests, CommandLine,
    testing::Values(
        Case{"AllProblems", batch("bad.jsonl"), 5, "3 problems in"},
        Case{"LineOfSyntax", batch("bad.jsonl"), 5, "bad.jsonl:2: "},
        Case{"LineOfTwice", batch("bad.jsonl"), 5, "bad.jsonl:3: custom_id \"a\" was already used"},
        Case{"LineOfDocument", batch("bad.jsonl"), 5, "bad.jsonl:4: body.documents[0]: "},
        Case{"ChatWithoutTemplate", batch("chat.jsonl"), 5, "chat.jsonl:1: the model "},
        Case{"ChatTemplate", batch("chat.jsonl", {"--chat-template", "DIR/chat.jinja"}), 0,
             "1 done in"},
        Case{"ChatTemplateBroken", batch("chat.jsonl", {"--chat-template", "DIR/broken.jinja"}), 5,
             "broken.jinja"},
        Case{"ChatTemplateOfAKindThatIsNotRead", question({"--chat-template", "DIR/unread.jinja"}),
             5, "is not supported"},
        Case{"ChatQuestion", question({"--chat-template", "DIR/chat.jinja", "-sys", "Be brief."}),
             0, "chat template: "},
        Case{"SystemMessageAlone", question({"--sys", "Be brief."}), 2, "--sys needs"},
        Case{"SomeFail", batch("long.jsonl"), 1, "1 done in"},
        Case{"DoesNotFit", question({"--kv-limit", "1K"}), 3, "the limit is 1.00 KiB"},
        Case{"ContextTooSmall", question({"-c", "3"}), 2, "error: needs 5 tokens"}),
    [](const auto& param) { return param.param.name; });

TEST(CommandLineRun, FlagsComeFromTheEnvironmentToo) {
  const test::TemporaryFolder folder;
  ChildProcess process(
      folder.path(), {"run", "-p", "Hi"},
      {"LONGHAUL_MODEL=" + model(), "LONGHAUL_N_PREDICT=1", "LONGHAUL_ISA=baseline"});
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("prompt tokens, 1 new ones"));
  EXPECT_THAT(process.errors(), HasSubstr("baseline kernels"));
}

TEST(CommandLineRun, MisspeltVariablesAreNamedAndForeignOnesLeftAlone) {
  const test::TemporaryFolder folder;
  ChildProcess process(folder.path(), {"run", "-m", model(), "-p", "Hi", "-n", "1"},
                       {"LONGHAUL_CTX_SIEZ=9", "LONGHAUL_MAX_REQUEUES=3", "LONGHAUL_ISA=baseline"});
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(process.errors(), HasSubstr("LONGHAUL_CTX_SIEZ: did you mean LONGHAUL_CTX_SIZE?"));
  EXPECT_THAT(process.errors(), testing::Not(HasSubstr("LONGHAUL_MAX_REQUEUES")));
  EXPECT_THAT(process.errors(), testing::Not(HasSubstr("LONGHAUL_ISA:")));
}

TEST(CommandLineRun, EveryNameOfAFlagIsAVariable) {
  const test::TemporaryFolder folder;
  const auto errors = [&](const Words& variables) {
    ChildProcess process(folder.path(), {"run", "-m", model(), "-p", "Hi"}, variables);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    return process.errors();
  };
  const std::string second = errors({"LONGHAUL_MAX_TOKENS=1"});  // of -n,--n-predict,--max-tokens
  EXPECT_THAT(second, HasSubstr("prompt tokens, 1 new ones"));
  EXPECT_THAT(second, testing::Not(HasSubstr("LONGHAUL_")));
  const std::string both = errors({"LONGHAUL_MAX_TOKENS=1", "LONGHAUL_N_PREDICT=2"});
  EXPECT_THAT(both, HasSubstr("prompt tokens, 2 new ones"));
  EXPECT_THAT(both, HasSubstr("LONGHAUL_MAX_TOKENS is left out: LONGHAUL_N_PREDICT sets the same"));
}

// --temp was named, which the user had not written.
TEST(CommandLineRun, BadVariablesAreNamedAndNotTheirFlags) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"LONGHAUL_TEMPERATURE=x", "LONGHAUL_TEMPERATURE: 'x' is not a number"},
      {"LONGHAUL_TEMP=-5", "LONGHAUL_TEMP is -5; it must lie in"},
      {"LONGHAUL_TOP_P=7", "LONGHAUL_TOP_P is 7; it must lie in"},
      {"LONGHAUL_CTX_SIZE=x", "LONGHAUL_CTX_SIZE: 'x' is not a count"},
      {"LONGHAUL_REPRODUCIBLE=maybe", "LONGHAUL_REPRODUCIBLE: 'maybe' is neither true nor false"},
      {"LONGHAUL_KV_LIMIT=much", "LONGHAUL_KV_LIMIT: 'much' is not a size"},
      {"LONGHAUL_BATCH_SIZE=-2", "LONGHAUL_BATCH_SIZE: -2 is not"},
      {"LONGHAUL_LOG_LEVEL=loud", "LONGHAUL_LOG_LEVEL: log level 'loud'"},
      {"LONGHAUL_SINK=4", "LONGHAUL_SINK and --recent need --head-profile"}};
  for (const auto& [variable, message] : cases) {
    const test::TemporaryFolder folder;
    ChildProcess process(folder.path(), {"run", "-m", model(), "-p", "Hi", "-n", "1"}, {variable});
    EXPECT_EQ(process.wait(), 2) << process.errors();
    EXPECT_THAT(process.errors(), HasSubstr("error: " + message));
  }
}

TEST(CommandLineRun, VariablesThatOtherCommandsWouldRefuseAreNotRead) {
  const test::TemporaryFolder folder;
  ChildProcess process(folder.path(), {"run", "-m", model(), "-p", "Hi", "-n", "1"},
                       {"LONGHAUL_OUTPUT=list.txt", "LONGHAUL_LENGTHS=none"});  // of bench, eval
  EXPECT_EQ(process.wait(), 0) << process.errors();
}

TEST(CommandLineRun, QuietIsAnswersWarningsAndTheLastLine) {
  const test::TemporaryFolder folder;
  replace_file(folder.path() / "in.jsonl",
               request_line("a", R"({"prompt":"Hi","max_tokens":1,"documents":[{"text":""}]})"));
  const Words words = {"run", "-q",
                       "-m",  model(),
                       "-i",  (folder.path() / "in.jsonl").string(),
                       "-o",  (folder.path() / "out.jsonl").string()};
  for (const char* which : {"first", "again"}) {
    ChildProcess process(folder.path(), words);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    EXPECT_THAT(process.errors(),
                testing::MatchesRegex("longhaul: warning: [^\n]*in.jsonl:1: body.documents.0.: the "
                                      "text is empty\nlonghaul: 1 done in [^\n]*\n"))
        << which;
  }
}

// The help of a command, and of those below it.
void expect_narrow_help(const Words& command) {
  const test::TemporaryFolder folder;
  Words words = command;
  words.emplace_back("--help");
  ChildProcess process(folder.path(), words);
  ASSERT_EQ(process.wait(), 0) << process.errors();
  std::istringstream lines(process.output());
  bool lists_commands = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << testing::PrintToString(command) << '\n' << line;
    if (line.empty()) lists_commands = false;
    if (lists_commands && line.size() > 2 && line[2] != ' ') {
      Words below = command;
      below.push_back(line.substr(2, line.find(' ', 2) - 2));
      expect_narrow_help(below);
    }
    if (line == "Subcommands:") lists_commands = true;
  }
}

TEST(CommandLineHelp, IsNoWiderThanATerminal) { expect_narrow_help({}); }

TEST(CommandLineRun, StopStringsOfTheCommandLineEndAnswersThatNameNone) {
  const test::TemporaryFolder folder;
  const std::string question = R"("prompt":"The access code","max_tokens":8)";
  replace_file(folder.path() / "in.jsonl",
               request_line("usual", "{" + question + "}") +
                   request_line("own", "{" + question + R"(,"stop":["never so"]})"));
  const auto texts = [&](const Words& more) {
    Words words = {"run", "-m", model(), "-i", (folder.path() / "in.jsonl").string()};
    words.insert(words.end(), {"-o", "-"});
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess process(folder.path(), words);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    std::map<std::string, std::string> found;
    std::istringstream lines(process.output());
    for (std::string line; std::getline(lines, line);) {
      const Json value = parse_json(line, "output");
      const JsonField field(value, "output");
      found[field.at("custom_id").as_string()] =
          field.at("response").at("body").at("choices").at(0).at("text").as_string();
    }
    return found;
  };
  const auto whole = texts({});
  ASSERT_GT(whole.at("usual").size(), 2U);
  EXPECT_EQ(whole.at("usual"), whole.at("own"));
  const std::string stop = whole.at("usual").substr(2, 1);
  const auto cut = texts({"--stop", "never", "--stop", stop});
  EXPECT_EQ(cut.at("usual"), whole.at("usual").substr(0, whole.at("usual").find(stop)));
  EXPECT_EQ(cut.at("own"), whole.at("own"));
}

TEST(CommandLineRun, RefusesToContinueWithOtherSettings) {
  const test::TemporaryFolder folder;
  write_files(folder.path());
  const auto run = [&](const Words& more) {
    Words words = {"run",
                   "-m",
                   model(),
                   "-i",
                   (folder.path() / "good.jsonl").string(),
                   "-o",
                   (folder.path() / "out.jsonl").string()};
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess process(folder.path(), words);
    const int status = process.wait();
    return std::pair(status, process.errors());
  };
  EXPECT_EQ(run({}).first, 0);
  const auto [status, errors] = run({"--temp", "0.5"});
  EXPECT_EQ(status, 2);
  EXPECT_THAT(errors, HasSubstr("settings.default_sampling.temperature: was 0, now 0.5"));
  EXPECT_EQ(run({"--temp", "0.5", "--overwrite"}).first, 0);
}

TEST(CommandLineRun, FailedRequestsAreNamedAndCanBeRetried) {
  const test::TemporaryFolder folder;
  write_files(folder.path());
  const fs::path errors = folder.path() / "out.errors.jsonl";
  const Words words = {"run",
                       "-m",
                       model(),
                       "-i",
                       (folder.path() / "long.jsonl").string(),
                       "-o",
                       (folder.path() / "out.jsonl").string()};
  ASSERT_EQ(ChildProcess(folder.path(), words).wait(), 1);
  EXPECT_THAT(read_file(errors, 1 << 20), HasSubstr("context_length_exceeded"));
  ASSERT_EQ(ChildProcess(folder.path(), words).wait(), 1);  // still failed, not run again
  replace_file(folder.path() / "long.jsonl",
               request_line("a", R"({"prompt":"Hi","max_tokens":2})") +
                   request_line("b", R"({"prompt":"Hi","max_tokens":3})"));
  Words retry = words;
  retry.push_back("--retry-errors");
  ASSERT_EQ(ChildProcess(folder.path(), retry).wait(), 0);
  EXPECT_EQ(read_file(errors, 1 << 20), "");
}

// They had failed for good, whatever memory the next start had.
TEST(CommandLineRun, RequestsThatFailedForWantOfMemoryRunAgain) {
  const test::TemporaryFolder folder;
  write_files(folder.path());
  const auto run = [&](const Words& more) {
    Words words = batch("good.jsonl", more);
    words[2] = model();
    words[4] = (folder.path() / "good.jsonl").string();
    words[6] = (folder.path() / "out.jsonl").string();
    ChildProcess process(folder.path(), words);
    const int status = process.wait();
    return std::pair(status, process.errors());
  };
  const auto [status, errors] = run({"--kv-limit", "1K"});
  EXPECT_EQ(status, 1);
  EXPECT_THAT(errors, HasSubstr("for want of memory: the same command runs them again"));
  EXPECT_EQ(run({}).first, 0);
  // Of what is not asked for any more, the results stay, which is said.
  replace_file(folder.path() / "good.jsonl",
               request_line("b", R"({"prompt":"Hi","max_tokens":1})"));
  EXPECT_THAT(run({}).second, HasSubstr("1 line in "));
}

// Ctrl-C lost all that was read, without a word.
TEST(CommandLineRun, AStoppedQuestionSaysThatNothingWasSaved) {
  const test::TemporaryFolder folder;
  std::string text;
  while (text.size() < (std::size_t{512} << 10))
    text += "The tide came in, and the tide went out. ";
  replace_file(folder.path() / "long.txt", text);
  ChildProcess process(folder.path(), {"run", "-m", model(), "-f",
                                       (folder.path() / "long.txt").string(), "-p", "Why?"});
  while (process.running() && process.errors().find("KV heads") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 75);
  EXPECT_THAT(process.errors(), HasSubstr("the answer is not complete"));
  const std::string hint = "nothing was saved: --checkpoint-dir FOLDER";
  EXPECT_EQ(process.errors().find(hint) != std::string::npos, build_info::kHasHdf5);
}

TEST(CommandLineRun, EchoScoresAPrompt) {
  const test::TemporaryFolder folder;
  replace_file(folder.path() / "score.jsonl",
               request_line("a", R"({"prompt":"The secret code","max_tokens":0,"echo":true,)"
                                 R"("logprobs":1})"));
  ChildProcess process(folder.path(),
                       {"run", "-m", model(), "-i", (folder.path() / "score.jsonl").string(), "-o",
                        (folder.path() / "out.jsonl").string()});
  ASSERT_EQ(process.wait(), 0) << process.errors();
  const Json line = parse_json(read_file(folder.path() / "out.jsonl", 1 << 20), "out.jsonl");
  const JsonField choice =
      JsonField(line, "out.jsonl").at("response").at("body").at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "The secret code");
  const JsonField scores = choice.at("logprobs").at("token_logprobs");
  ASSERT_GT(scores.size(), 2U);
  EXPECT_TRUE(scores.at(0).json().is_null());
  EXPECT_LT(scores.at(1).as_number(), 0);
}

// Each rank would print it, were it not for the one that leads.
TEST(CommandLinePlan, UnderMpirunPrintsOnce) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const test::TemporaryFolder folder;
  const auto plan = [&](const Words& more) {
    Words words = {"plan", "-m", model(), "--document-tokens", "64K"};
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess process(folder.path(), words, test::mpirun_variables(), test::mpirun(3));
    EXPECT_EQ(process.wait(), 0) << process.errors();
    return process.output();
  };
  const std::string found = plan({});
  EXPECT_THAT(found, testing::StartsWith("Plan "));
  EXPECT_THAT(found, HasSubstr("3 ranks in all"));
  EXPECT_THAT(found, HasSubstr("documents of 65536 tokens"));
  EXPECT_EQ(found.find("ranks in all"), found.rfind("ranks in all")) << found;
  const std::string described = plan({"--ranks", "8", "--memory", "1G"});
  EXPECT_THAT(described, HasSubstr("8 ranks in all"));
  EXPECT_EQ(described.find("ranks in all"), described.rfind("ranks in all")) << described;
}

// It asked for the description of a cluster.
TEST(CommandLinePlan, UnderMpirunOneRankIsEnough) {
  LONGHAUL_SKIP_WITHOUT_MPIRUN();
  const test::TemporaryFolder folder;
  ChildProcess process(folder.path(), {"plan", "-m", model(), "--document-tokens", "1K"},
                       test::mpirun_variables(), test::mpirun(1));
  EXPECT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(process.output(), HasSubstr("documents of 1024 tokens"));
}

}  // namespace
}  // namespace longhaul
