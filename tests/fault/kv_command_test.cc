// `longhaul kv`: what each of its commands prints about files that a run saved, what they make of
// them, and with which exit status.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class KvCommand : public RankedJob {
 protected:
  // Runs all requests; gives what the program printed on stderr.
  std::string run(const std::string& name, const Words& more) {
    ChildProcess process(folder(), command(folder() / name, more));
    EXPECT_EQ(process.wait(), 0) << process.errors();
    return process.errors();
  }
  // The three documents as two ranks saved them, and as three did: once for all tests.
  KvCommand() {
    for (const auto& [name, n_ranks] : {std::pair("a", "2"), std::pair("b", "3")}) {
      const fs::path once = saved_once().path() / name;
      if (!fs::exists(once)) {
        run(name + std::string(".jsonl"), {"--save-kv", once.string(), "--ranks", n_ranks});
        EXPECT_EQ(saved_masters(once).size(), 3U);
      }
      fs::copy(once, folder() / name);
    }
  }
  static const TemporaryFolder& saved_once() {
    static const TemporaryFolder folder;
    return folder;
  }
  std::vector<fs::path> masters(const std::string& name) { return saved_masters(folder() / name); }
  // What `longhaul kv ...` printed, both streams.
  std::string kv(const Words& words, int status = 0) {
    Words all = {"kv"};
    all.insert(all.end(), words.begin(), words.end());
    ChildProcess process(folder(), all);
    EXPECT_EQ(process.wait(), status) << process.output() << process.errors();
    return process.output() + process.errors();
  }
  // The example's model as if it were trained to merge tokens; what it answers does not matter.
  fs::path merging_model() {
    const fs::path model = folder() / "merging";
    if (fs::exists(model)) return model;
    fs::create_directory(model);
    for (const auto& entry : fs::directory_iterator(example_path("model"))) {
      if (entry.path().filename() != "config.json")
        fs::create_symlink(entry.path(), model / entry.path().filename());
    }
    std::string config = read_file(example_path("model") / "config.json", 1 << 20);
    config.insert(config.find('{') + 1, R"("dmc_window_size": 5, "dmc_init_val": 0.0,)");
    replace_file(model / "config.json", config);
    return model;
  }
  void expect_answers_from(const std::string& name, const Words& more = {}) {
    Words words = {"--load-kv", (folder() / name).string()};
    words.insert(words.end(), more.begin(), more.end());
    const std::string printed = run("from-" + name + ".jsonl", words);
    EXPECT_EQ(count(printed, "none to read"), 3) << printed;
    EXPECT_EQ(texts_of(folder() / ("from-" + name + ".jsonl")), undisturbed_texts());
  }
  static int count(const std::string& text, const std::string& what) {
    int n = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  static void damage(const fs::path& path) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).write("bad", 3);
  }
};

TEST_F(KvCommand, ListInfoAndVerifySayWhatIsThere) {
  const fs::path master = masters("a").front();
  const SavedHeader header = read_saved_header(master);
  const std::string listed = kv({"list", (folder() / "a").string()});
  EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'), 4) << "a title and three documents";
  EXPECT_THAT(listed, AllOf(HasSubstr(header.name()), HasSubstr("bf16/bf16"),
                            HasSubstr(fmt::format(" {} ", header.n_tokens))));
  EXPECT_THAT(kv({"info", master.string()}),
              AllOf(HasSubstr(header.content_id),
                    HasSubstr("14 streaming (sink 16, recent 128), 2 retrieval"),
                    HasSubstr("part-0001.h5"), HasSubstr("keys bf16, values bf16")));
  const std::string verified = kv({"verify", (folder() / "a").string()});
  EXPECT_EQ(count(verified, ": whole: "), 3) << verified;
  damage(header.folder() / header.parts.back().name);
  const std::string again = kv({"verify", (folder() / "a").string()}, 5);
  EXPECT_EQ(count(again, ": whole: "), 2) << again;
  EXPECT_THAT(again, AllOf(HasSubstr(": NOT whole: "), HasSubstr(header.parts.back().name)));
  EXPECT_THAT(kv({"info", (folder() / "requests.jsonl").string()}, 5), HasSubstr("damaged"));
}

// Both told of such a document as of one that is whole.
TEST_F(KvCommand, ListAndInfoNameAPartThatIsMissing) {
  const SavedHeader header = read_saved_header(masters("a").front());
  const fs::path part = header.folder() / header.parts.back().name;
  const std::string master = header.master.filename().string();
  fs::resize_file(part, 100);
  EXPECT_THAT(kv({"info", header.master.string()}, 5),
              AllOf(HasSubstr(header.content_id),
                    HasSubstr(fmt::format("{}, which {} is made of, has 100 bytes in place of {}: "
                                          "put back a copy that is whole",
                                          part.string(), master, header.parts.back().n_bytes))));
  fs::remove(part);
  for (const char* command : {"list", "info"}) {
    const std::string printed = kv({command, header.folder().string()}, 5);
    EXPECT_THAT(printed, HasSubstr(fmt::format("{}, which {} is made of, is missing: put back a "
                                               "copy that is whole",
                                               part.string(), master)));
    EXPECT_THAT(printed, HasSubstr(masters("a").back().stem().string()))
        << "the others are told of";
  }
  fs::remove(header.master);
  const fs::path other = header.folder() / header.parts.front().name;
  EXPECT_THAT(kv({"info", other.string()}, 5),
              HasSubstr(fmt::format("is a part of {}, which is missing: put that back",
                                    header.master.string())));
}

TEST_F(KvCommand, HelpOfOtherCommandsSaysNothingOfDiff) {
  for (const char* command : {"list", "info", "verify", "convert", "merge"}) {
    EXPECT_THAT(kv({command, "--help"}),
                AllOf(HasSubstr("Exit status: 0 done"), testing::Not(HasSubstr("diff"))))
        << command;
  }
  EXPECT_THAT(kv({"diff", "--help"}), HasSubstr("diff also ends with 1 where anything differs"));
}

TEST_F(KvCommand, DiffNamesTokensHeadsAndSizes) {
  const std::vector<fs::path> saved = masters("a");
  EXPECT_THAT(kv({"diff", saved[0].string(), saved[0].string()}), HasSubstr("no difference"));
  EXPECT_THAT(kv({"diff", saved[0].string(), saved[1].string()}, 1),
              AllOf(HasSubstr("tokens: "), HasSubstr("layer 0, KV head 0: "),
                    HasSubstr("positions only in the ")));
  kv({"convert", saved[0].string(), "--to", (folder() / "int8").string(), "--cache-type-k",
      "int8"});
  EXPECT_THAT(kv({"diff", saved[0].string(), masters("int8").front().string()}, 1),
              AllOf(HasSubstr("cache_type_k: was \"bf16\", now \"int8\""), HasSubstr("keys up to "),
                    HasSubstr("values equal")));
}

TEST_F(KvCommand, ConvertMakesOnePartAndOtherBlocksThatRunsAnswerFrom) {
  for (const fs::path& master : masters("b")) {
    EXPECT_EQ(read_saved_header(master).parts.size(), 3U);
    EXPECT_THAT(
        kv({"convert", master.string(), "--to", (folder() / "c").string(), "--block-size", "16"}),
        HasSubstr(master.filename().string()));
    EXPECT_THAT(kv({"diff", master.string(), (folder() / "c" / master.filename()).string()}),
                HasSubstr("no difference"));
  }
  ASSERT_EQ(masters("c").size(), 3U);
  for (const fs::path& master : masters("c")) EXPECT_EQ(read_saved_header(master).parts.size(), 1U);
  expect_answers_from("c", {"--ranks", "2"});
}

TEST_F(KvCommand, MergeMakesOneOfWhatSeveralRunsHave) {
  const fs::path copies = folder() / "copies";
  fs::copy(folder() / "a", copies);
  for (std::size_t i = 0; i < 3; ++i) {
    const SavedHeader a = read_saved_header(masters("a")[i]);
    const SavedHeader b = read_saved_header(masters("b")[i]);
    const fs::path copy = copies / a.master.filename();
    // Of the first one half is damaged, of its copy the other half is lost; the last is whole.
    damage(a.folder() / a.parts[i % 2].name);
    if (i == 2) {
      EXPECT_THAT(kv({"merge", a.master.string(), b.master.string(), "--to", folder() / "c"}),
                  AllOf(HasSubstr("left out: "), HasSubstr(a.parts[i % 2].name)));
      continue;
    }
    fs::remove(copies / a.parts[1 - i % 2].name);
    EXPECT_THAT(kv({"merge", a.master.string(), copy.string(), "--to", folder() / "c"}),
                AllOf(HasSubstr("left out: "), HasSubstr(a.parts[i % 2].name),
                      HasSubstr(a.parts[1 - i % 2].name + ", which"), HasSubstr("is missing")));
  }
  EXPECT_EQ(count(kv({"verify", folder() / "c"}), ": whole: "), 3);
  expect_answers_from("c");
}

TEST_F(KvCommand, ChosenTokensAreCheckedConvertedAndMerged) {
  const Words chosen = {"--full-heads", "snapkv:capacity=200,group=each",
                        "--save-kv",    (folder() / "chosen").string(),
                        "--ranks",      "2"};
  run("chosen.jsonl", chosen);
  const fs::path master = masters("chosen").front();
  EXPECT_THAT(kv({"info", master.string()}), HasSubstr("2 retrieval (chosen tokens)"));
  const SavedHeader header = read_saved_header(master);
  const std::vector<SavedRole> roles = read_saved_roles(header);
  for (std::int64_t i = 0; i < std::ssize(roles); ++i) {
    const auto kept =
        read_saved_positions(header, {i / header.n_kv_heads}, {i % header.n_kv_heads});
    if (!roles[static_cast<std::size_t>(i)].is_chosen()) continue;
    const auto seen_by =
        read_saved_seen_by(header, {i / header.n_kv_heads}, {i % header.n_kv_heads});
    ASSERT_EQ(seen_by.size(), kept.size());
    for (int head = 0; head < 64; ++head) {
      const auto n =
          std::ranges::count_if(seen_by, [&](SeenBy heads) { return (heads >> head & 1) != 0; });
      EXPECT_TRUE(n == 200 || n == 0) << "query head " << head;
    }
  }
  EXPECT_EQ(count(kv({"verify", folder() / "chosen"}), ": whole: "), 3);
  kv({"convert", master.string(), "--to", folder() / "one"});
  EXPECT_THAT(kv({"diff", master.string(), masters("one").front().string()}),
              HasSubstr("no difference"));
  // Each file lacks another part; together they have all.
  fs::copy(folder() / "chosen", folder() / "copy");
  fs::remove(header.folder() / header.parts[0].name);
  const fs::path copy = folder() / "copy" / master.filename();
  fs::remove(copy.parent_path() / header.parts[1].name);
  kv({"merge", master.string(), copy.string(), "--to", folder() / "both"});
  EXPECT_THAT(kv({"diff", masters("one").front().string(), masters("both").front().string()}),
              HasSubstr("no difference"));
}

TEST_F(KvCommand, GroupsOfTokensAreCheckedConvertedAndMerged) {
  run("groups.jsonl", {"--cache-type-k", "kivi4", "--cache-type-v", "kivi2", "--save-kv",
                       (folder() / "groups").string(), "--ranks", "2"});
  const fs::path master = masters("groups").front();
  EXPECT_THAT(kv({"info", master.string()}), HasSubstr("keys kivi4, values kivi2"));
  EXPECT_EQ(count(kv({"verify", folder() / "groups"}), ": whole: "), 3);
  kv({"convert", master.string(), "--to", folder() / "one"});
  EXPECT_THAT(kv({"diff", master.string(), masters("one").front().string()}),
              HasSubstr("no difference"));
  kv({"convert", master.string(), "--to", folder() / "f32", "--cache-type-k", "f32",
      "--cache-type-v", "f32"});
  EXPECT_THAT(kv({"diff", master.string(), masters("f32").front().string()}, 1),
              AllOf(HasSubstr("cache_type_k: was \"kivi4\", now \"f32\""),
                    testing::Not(HasSubstr("apart"))));
  EXPECT_THAT(kv({"convert", masters("f32").front().string(), "--to", folder() / "back",
                  "--cache-type-k", "kivi4"},
                 2),
              HasSubstr("keys of type f32 (this run: kivi4)"));
  // Each file lacks another part; together they have all.
  const SavedHeader header = read_saved_header(master);
  fs::copy(folder() / "groups", folder() / "copy");
  fs::remove(header.folder() / header.parts[0].name);
  const fs::path copy = folder() / "copy" / master.filename();
  fs::remove(copy.parent_path() / header.parts[1].name);
  kv({"merge", master.string(), copy.string(), "--to", folder() / "both"});
  EXPECT_THAT(kv({"diff", masters("one").front().string(), masters("both").front().string()}),
              HasSubstr("no difference"));
}

// Conversion left out the tokens that later ones may merge with, and said that nothing differed.
TEST_F(KvCommand, ConvertedCachesOfMergedTokensCouldNotBeLoaded) {
  const auto answers = [&](const std::string& name, const Words& more) {
    Words words = {"run", "-m", merging_model(), "-i", folder() / "requests.jsonl"};
    words.insert(words.end(), {"-o", folder() / name, "-t", "1", "--no-progress"});
    words.insert(words.end(), more.begin(), more.end());
    ChildProcess process(folder(), words);
    EXPECT_EQ(process.wait(), 0) << process.errors();
    return std::pair(texts_of(folder() / name), process.errors());
  };
  const auto [texts, saved] = answers("merged.jsonl", {"--save-kv", folder() / "merged"});
  ASSERT_EQ(masters("merged").size(), 3U);
  for (const std::string what : {"convert", "merge"}) {
    for (const fs::path& master : masters("merged")) {
      kv({what, master.string(), "--to", (folder() / what).string()});
      EXPECT_THAT(kv({"diff", master.string(), (folder() / what / master.filename()).string()}),
                  HasSubstr("no difference"));
    }
    const auto [again, printed] = answers(what + ".jsonl", {"--load-kv", folder() / what});
    EXPECT_EQ(count(printed, "none to read"), 3) << printed;
    EXPECT_EQ(again, texts);
  }
}

TEST_F(KvCommand, PartsThatAShellNamesBesideTheirMasterWereNotWhole) {
  Words all;
  for (const auto& entry : fs::directory_iterator(folder() / "a")) all.push_back(entry.path());
  ASSERT_EQ(all.size(), 9U);
  const auto with = [&](const std::string& what) {
    Words words = {what};
    words.insert(words.end(), all.begin(), all.end());
    return words;
  };
  EXPECT_EQ(count(kv(with("verify")), ": whole: "), 3);
  EXPECT_EQ(count(kv(with("info")), "content  "), 3);
  const SavedHeader header = read_saved_header(masters("a").front());
  const std::string part = (header.folder() / header.parts[0].name).string();
  kv({"merge", part, header.master.string(), "--to", folder() / "c"});
  for (const char* what : {"info", "verify", "list"}) {
    EXPECT_THAT(kv({what, part}, 2),
                AllOf(HasSubstr(" is a part of "), HasSubstr(header.master.string())));
  }
}

TEST_F(KvCommand, BlocksOfAnotherSizeThanTheDefaultWereRefused) {
  run("groups.jsonl", {"--cache-type-k", "kivi4", "--cache-type-v", "kivi4", "--block-size", "128",
                       "--save-kv", (folder() / "groups").string()});
  const fs::path master = masters("groups").front();
  kv({"convert", master.string(), "--to", (folder() / "c").string()});
  EXPECT_THAT(kv({"diff", master.string(), masters("c").front().string()}),
              HasSubstr("no difference"));
}

// The path was printed with status 0, and the file had the blocks that it had before.
TEST_F(KvCommand, ConvertRefusesAFileThatIsThereInOtherBlocks) {
  const std::string master = masters("b").front().string();
  const std::string to = (folder() / "c").string();
  kv({"convert", master, "--to", to, "--block-size", "16"});
  const std::string refused = kv({"convert", master, "--to", to, "--block-size", "32"}, 2);
  EXPECT_THAT(refused, AllOf(HasSubstr("is there already, in blocks of 16 with keys bf16"),
                             HasSubstr("and blocks of 32 with keys bf16")));
  EXPECT_THAT(kv({"convert", master, "--to", to}, 2), HasSubstr("and blocks of 64"));
  const std::string in_place = (folder() / "b").string();
  EXPECT_THAT(kv({"convert", master, "--to", in_place, "--block-size", "32"}, 2),
              HasSubstr("in blocks of 64"));
  kv({"convert", master, "--to", to, "--block-size", "16"});  // it has what is asked for
  EXPECT_EQ(read_saved_header(masters("c").front()).block_size, 16);
}

TEST_F(KvCommand, FlagsComeFromTheEnvironmentToo) {
  ChildProcess process(
      folder(), {"kv", "convert", masters("a").front().string(), "--to", (folder() / "c").string()},
      {"LONGHAUL_CACHE_TYPE_K=int8", "LONGHAUL_CTV=int8"});
  ASSERT_EQ(process.wait(), 0) << process.errors();
  EXPECT_THAT(kv({"info", masters("c").front().string()}), HasSubstr("keys int8, values int8"));
}

TEST_F(KvCommand, WhatIsNotThereIsABrokenInput) {
  for (const Words& words : std::vector<Words>{{"list", "nosuch"},
                                               {"info", "nosuch"},
                                               {"verify", "nosuch"},
                                               {"diff", "nosuch", "nosuch"},
                                               {"convert", "nosuch", "--to", "c"},
                                               {"merge", "nosuch", "--to", "c"}}) {
    EXPECT_THAT(kv(words, 5), HasSubstr("nosuch: there is no such file")) << words.front();
  }
  const std::string empty = folder() / "empty";
  fs::create_directory(empty);
  for (const char* name : {"info", "verify"}) {
    EXPECT_THAT(kv({name, masters("a").front().string(), empty}, 5),
                HasSubstr("empty: no saved document (NAME.h5) is in this folder"));
  }
  kv({"list", empty});
  EXPECT_THAT(kv({"--help"}), HasSubstr("Exit status: 0 done"));
  ChildProcess process(folder(), command(folder() / "x.jsonl", {"--load-kv", "nosuch"}));
  EXPECT_EQ(process.wait(), 5);
  EXPECT_THAT(process.errors(), HasSubstr("--load-kv nosuch: there is no such folder"));
}

TEST_F(KvCommand, MergeRefusesOtherDocumentsAndWhatNobodyHas) {
  const std::vector<fs::path> saved = masters("a");
  const std::string to = (folder() / "c").string();
  EXPECT_THAT(kv({"merge", saved[0].string(), saved[1].string(), "--to", to}, 2),
              HasSubstr("no beginning of the first one's"));
  const SavedHeader header = read_saved_header(saved[0]);
  for (const WrittenFile& part : header.parts) damage(header.folder() / part.name);
  EXPECT_THAT(kv({"merge", saved[0].string(), "--to", to}, 5),
              AllOf(HasSubstr("layer 0, KV head 0: none of the files has all of the positions [0"),
                    HasSubstr("is damaged")));
  EXPECT_TRUE(masters("c").empty());
}

}  // namespace
}  // namespace longhaul::test
