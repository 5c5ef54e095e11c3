// `longhaul run --load-kv`: answers come from saved caches, on other ranks and in other blocks than
// those that wrote them; what differs is refused by name, and files that are damaged are not used.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/file.h"
#include "tests/fault/ranked_job.h"
#include "tests/fault/result_files.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LoadKv : public RankedJob {
 protected:
  fs::path caches() const { return folder() / "caches"; }
  // Runs all requests; gives what the program printed.
  std::string run(const std::string& name, const Words& more, int status = 0) {
    return run_words(command(folder() / name, more), status);
  }
  // The same without a head profile: `more` says what all heads keep.
  std::string run_without_profile(const std::string& name, const Words& more, int status = 0) {
    Words words = command(folder() / name, more);
    const auto profile = std::find(words.begin(), words.end(), "--head-profile");
    words.erase(profile, profile + 2);
    return run_words(words, status);
  }
  std::string run_words(const Words& words, int status) {
    ChildProcess process(folder(), words);
    EXPECT_EQ(process.wait(), status) << process.errors();
    return process.errors();
  }
  void save(const Words& more = {}) {
    Words words = {"--save-kv", caches().string()};
    words.insert(words.end(), more.begin(), more.end());
    run("saved.jsonl", words);
    ASSERT_EQ(saved_masters(caches()).size(), 3U);
    EXPECT_EQ(texts_of(folder() / "saved.jsonl"), undisturbed_texts());
  }
  static std::size_t n_restored(const std::string& printed) {
    std::size_t n = 0;
    for (auto at = printed.find("none to read"); at != std::string::npos;
         at = printed.find("none to read", at + 1))
      ++n;
    return n;
  }
};

TEST_F(LoadKv, OtherRanksAnswerFromWhatSomeSaved) {
  save({"--ranks", "2"});
  for (const char* n_ranks : {"1", "3"}) {
    const std::string name = fmt::format("loaded-{}.jsonl", n_ranks);
    const std::string printed = run(name, {"--load-kv", caches().string(), "--ranks", n_ranks});
    EXPECT_EQ(n_restored(printed), 3U) << printed;
    EXPECT_EQ(texts_of(folder() / name), undisturbed_texts());
  }
  // By itself, where the documents are to be saved and are there.
  EXPECT_EQ(n_restored(run("again.jsonl", {"--save-kv", caches().string()})), 3U);
  EXPECT_EQ(texts_of(folder() / "again.jsonl"), undisturbed_texts());
}

TEST_F(LoadKv, AnotherCacheTypeIsRefusedByNameOrConverted) {
  save();
  const Words int8 = {"--load-kv", caches().string(), "--cache-type-k", "int8"};
  EXPECT_THAT(run("int8.jsonl", int8, 2), HasSubstr("cache_type_k: was bf16, now int8"));
  Words converts = int8;
  converts.push_back("--kv-convert");
  EXPECT_EQ(n_restored(run("int8.jsonl", converts)), 3U);
  EXPECT_EQ(texts_of(folder() / "int8.jsonl"), undisturbed_texts());
}

// Saved by 1, 2 or 4 ranks and loaded by 1, 3 or 5, every pair in turn.
TEST_F(LoadKv, EveryPolicyComesBack) {
  const char* const savers[] = {"2", "1", "4"};
  const char* const loaders[] = {"3", "5", "1"};
  std::size_t round = 0;
  for (const std::string policy :
       {"dense", "streaming:sink=4,window=300,positions=cache", "window:window=300",
        "infinite:sink=4,cap=300,slide=50,positions=cache", "snapkv:capacity=300",
        "snapkv:capacity=300,after=prompt,pool=max", "pyramidkv:capacity=300", "adakv:capacity=300",
        "keydiff:capacity=300", "tova:capacity=400", "tova:capacity=400,after=token",
        "h2o:capacity=400,recent=200", "quest:budget=320,page=16,dense=1", "razor:window=300",
        "adakv:capacity=300,group=each", "fastgen", "fastgen:threshold=0.8,after=document",
        "fastgen:threshold=0.8,after=prompt"}) {
    const std::string& name = policy;
    const char* const saver = savers[round % 3];
    const char* const loader = loaders[round++ / 3 % 3];
    SCOPED_TRACE(testing::Message()
                 << policy << ", saved by " << saver << ", loaded by " << loader << " ranks");
    fs::remove_all(caches());
    const auto words = [&](const char* flag, const char* n_ranks) -> Words {
      return {"--policy", policy, flag, caches().string(), "--ranks", n_ranks, "--weights", "f32"};
    };
    run_without_profile(name + ".jsonl", words("--save-kv", saver));
    EXPECT_EQ(n_restored(run_without_profile(name + "-loaded.jsonl", words("--load-kv", loader))),
              3U);
    EXPECT_EQ(texts_of(folder() / (name + "-loaded.jsonl")),
              texts_of(folder() / (name + ".jsonl")));
  }
}

TEST_F(LoadKv, GroupsOfTokensComeBackOnOtherRanksInBlocksOfTheirSize) {
  const auto words = [&](const char* flag, Words more) {
    Words all = {"--cache-type-k", "kivi4", "--cache-type-v", "kivi2", flag, caches().string(),
                 "--weights",      "f32"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  run("saved.jsonl", words("--save-kv", {"--ranks", "2"}));
  EXPECT_EQ(n_restored(run("loaded.jsonl", words("--load-kv", {"--ranks", "3"}))), 3U);
  EXPECT_EQ(texts_of(folder() / "loaded.jsonl"), texts_of(folder() / "saved.jsonl"));
  EXPECT_THAT(run("blocks.jsonl", words("--load-kv", {"--block-size", "32"}), 2),
              HasSubstr("block_size: was 64, now 32"));
}

// The example's model as if it had been trained to merge tokens: answers mean nothing, and are the
// same from files.
TEST_F(LoadKv, MergedTokensComeBack) {
  const fs::path model = folder() / "merging";
  fs::copy(example_path("model"), model);
  std::string config = read_file(model / "config.json", 1 << 20);
  config.insert(config.find('{') + 1, R"("dmc_window_size": 12, "dmc_init_val": 0.2, )");
  replace_file(model / "config.json", config);
  const auto run_merging = [&](const std::string& name, const char* flag) {
    Words words = command(folder() / name, {flag, caches().string(), "--ranks", "2"});
    const auto profile = std::find(words.begin(), words.end(), "--head-profile");
    words.erase(profile, profile + 2);
    *(std::find(words.begin(), words.end(), "-m") + 1) = model.string();
    return run_words(words, 0);
  };
  run_merging("saved.jsonl", "--save-kv");
  EXPECT_EQ(n_restored(run_merging("loaded.jsonl", "--load-kv")), 3U);
  EXPECT_EQ(texts_of(folder() / "loaded.jsonl"), texts_of(folder() / "saved.jsonl"));
  ChildProcess verify(folder(), {"kv", "verify", caches().string()});
  EXPECT_EQ(verify.wait(), 0) << verify.output();
}

TEST_F(LoadKv, OtherHeadsWeightsAndModelsAreRefusedByName) {
  save();
  const auto refusal = [&](const Words& more) {
    Words words = {"--load-kv", caches().string()};
    words.insert(words.end(), more.begin(), more.end());
    return run("out.jsonl", words, 2);
  };
  EXPECT_THAT(refusal({"--recent", "200"}), HasSubstr("heads.recent: was 128, now 200"));
  EXPECT_THAT(refusal({"--sink", "8"}), HasSubstr("heads.sink: was 16, now 8"));
  EXPECT_THAT(refusal({"--weights", "f32"}), HasSubstr("weights: was"));
  // A byte in one of its files makes it another model.
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"tokenizer.json", "model.tokenizer_sha256: was"},
      {"config.json", "model.config_sha256: was"},
      {"model.safetensors", "model.weights.model.safetensors"}};
  for (const auto& [file, named] : changes) {
    SCOPED_TRACE(file);
    const fs::path model = folder() / ("model with another " + file);
    fs::copy(example_path("model"), model);
    std::fstream(model / file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(file == "model.safetensors" ? -1 : 0, std::ios::end)
        .put('\n');
    Words words = command(folder() / "out.jsonl", {"--load-kv", caches().string()});
    *(std::find(words.begin(), words.end(), "-m") + 1) = model.string();
    EXPECT_THAT(run_words(words, 2), HasSubstr(named));
  }
}

TEST_F(LoadKv, AFolderThatCannotBeReadIsNoEmptyOne) {
  fs::create_symlink("caches", caches());
  for (const fs::path& folder_of_none : {caches(), folder() / "0.txt"}) {
    EXPECT_THAT(run("out.jsonl", {"--load-kv", folder_of_none.string()}, 5),
                HasSubstr("--load-kv: cannot read the folder " + folder_of_none.string() + ": "));
    EXPECT_FALSE(fs::exists(folder() / "out.jsonl"));
  }
}

TEST_F(LoadKv, DocumentsThatAreNotThereAreNamed) {
  fs::create_directory(caches());
  const std::string printed = run("out.jsonl", {"--load-kv", caches().string()});
  std::size_t n = 0;
  for (auto at = printed.find("nothing of it is in "); at != std::string::npos;
       at = printed.find("nothing of it is in ", at + 1))
    ++n;
  EXPECT_EQ(n, 3U) << printed;
}

TEST_F(LoadKv, ADamagedFileEndsTheRunOrIsWrittenAnew) {
  save();
  const SavedHeader header = read_saved_header(saved_masters(caches()).front());
  const fs::path part = header.folder() / header.parts.front().name;
  std::fstream(part, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).write("bad", 3);
  EXPECT_THAT(run("refused.jsonl", {"--load-kv", caches().string()}, 5),
              HasSubstr(part.filename().string()));
  const std::string printed = run("saved-again.jsonl", {"--save-kv", caches().string()});
  EXPECT_EQ(n_restored(printed), 2U) << printed;
  EXPECT_THAT(printed, HasSubstr("saved caches are not used"));
  EXPECT_EQ(texts_of(folder() / "saved-again.jsonl"), undisturbed_texts());
}

}  // namespace
}  // namespace longhaul::test
