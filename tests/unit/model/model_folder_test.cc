#include "model/model_folder.h"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "model/weight_index.h"
#include "tests/support/paths.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/safetensors_bytes.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::safetensors_bytes;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kConfig =
    R"({"model_type": "llama", "vocab_size": 16, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2})";

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A file with the I8 tensors `names`, one byte each.
std::string tensors(const std::vector<std::string>& names) {
  std::string header = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"I8","shape":[1],"data_offsets":[{},{}]}})",
                          i == 0 ? "" : ",", names[i], i, i + 1);
  }
  return safetensors_bytes(header + "}", std::string(names.size(), 'x'));
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& map) {
  std::string text;
  for (const auto& [tensor, file] : map) {
    text += fmt::format(R"({}"{}": "{}")", text.empty() ? "" : ", ", tensor, file);
  }
  return fmt::format(R"({{"metadata": {{"total_size": 2}}, "weight_map": {{{}}}}})", text);
}

class ModelFolderTest : public testing::Test {
 protected:
  void SetUp() override { write(folder() / "config.json", kConfig); }
  fs::path folder() const { return temporary_.path() / "model"; }
  std::string refusal(ErrorCode code) {
    return message_of(code, [&] { ModelFolder(folder()).weight_bytes(); });
  }

 private:
  test::TemporaryFolder temporary_;
};

TEST_F(ModelFolderTest, ReadsASingleFile) {
  write(folder() / "model.safetensors", tensors({"a", "b"}));
  const ModelFolder model(folder());
  EXPECT_EQ(model.config().spec.vocab_size, 16);
  EXPECT_FALSE(model.generation().do_sample);
  EXPECT_TRUE(model.has_tensor("a"));
  EXPECT_FALSE(model.has_tensor("c"));
  EXPECT_EQ(model.tensor("b").bytes.size(), 1U);
  EXPECT_EQ(model.weight_bytes(), 2U);
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { model.tensor("c"); }),
              AllOf(HasSubstr(folder().string()), HasSubstr("tensor c is missing")));
}

TEST_F(ModelFolderTest, OpensWeightsOnFirstUseFromAnyThread) {
  const ModelFolder model(folder());  // no weights yet: the configuration alone is enough
  EXPECT_THAT(message_of(ErrorCode::kInvalidArgument, [&] { model.tensor("a"); }),
              AllOf(HasSubstr("has no weights"), HasSubstr("model.safetensors.index.json")));
  write(folder() / "model.safetensors", tensors({"a"}));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(model.tensor("a").bytes.size(), 1U); });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(ModelFolderTest, ReadsShards) {
  write(folder() / "model-1.safetensors", tensors({"a", "c"}));
  write(folder() / "model-2.safetensors", tensors({"b"}));
  write(folder() / "model.safetensors.index.json", index_of({{"a", "model-1.safetensors"},
                                                             {"b", "model-2.safetensors"},
                                                             {"c", "model-1.safetensors"}}));
  const ModelFolder model(folder());
  EXPECT_TRUE(model.has_tensor("b"));
  EXPECT_EQ(model.tensor("c").shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(model.weight_bytes(), 3U);
}

TEST_F(ModelFolderTest, RefusesIndexesThatDoNotMatchTheShards) {
  const auto index = folder() / "model.safetensors.index.json";
  write(folder() / "1.safetensors", tensors({"a"}));
  write(index, index_of({{"a", "2.safetensors"}}));
  EXPECT_THAT(refusal(ErrorCode::kCorruptData),
              AllOf(HasSubstr("weight_map.a"), HasSubstr("2.safetensors is not there")));
  write(index, index_of({{"b", "1.safetensors"}}));
  EXPECT_THAT(
      refusal(ErrorCode::kCorruptData),
      AllOf(HasSubstr(index.string()), HasSubstr("weight_map.b"), HasSubstr("has no such tensor")));
  write(folder() / "2.safetensors", tensors({"a", "b"}));
  write(index, index_of({{"a", "1.safetensors"}, {"b", "2.safetensors"}}));
  EXPECT_THAT(refusal(ErrorCode::kCorruptData),
              AllOf(HasSubstr("weight_map.a"), HasSubstr("2.safetensors too")));
}

TEST_F(ModelFolderTest, ChecksTheGenerationConfig) {
  write(folder() / "generation_config.json", R"({"eos_token_id": 16})");
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { ModelFolder{folder()}; }),
              AllOf(HasSubstr("generation_config.json: eos_token_id: 16"), HasSubstr("16 tokens")));
  write(folder() / "generation_config.json", R"({"eos_token_id": 15, "do_sample": true})");
  EXPECT_TRUE(ModelFolder(folder()).generation().do_sample);
}

TEST_F(ModelFolderTest, AnswersEndWithTokensOfBothConfigs) {
  const std::string of_config(kConfig.substr(0, kConfig.size() - 1));
  write(folder() / "config.json", of_config + R"(, "eos_token_id": [7, 3]})");
  EXPECT_EQ(ModelFolder(folder()).end_tokens(), (std::vector<std::int32_t>{3, 7}));
  write(folder() / "generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(ModelFolder(folder()).end_tokens(), (std::vector<std::int32_t>{3, 5, 7}));
}

TEST_F(ModelFolderTest, SaysWhenItIsNoModel) {
  fs::remove(folder() / "config.json");
  EXPECT_THAT(message_of(ErrorCode::kInvalidArgument, [&] { ModelFolder{folder()}; }),
              HasSubstr("has no config.json"));
  EXPECT_THAT(message_of(ErrorCode::kInvalidArgument, [&] { ModelFolder{folder() / "x"}; }),
              HasSubstr("is not there"));
}

TEST(WeightIndex, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../a.safetensors", "/etc/a.safetensors", "x/a.safetensors",
                           "a..safetensors", "x\\\\a.safetensors", "", "a\\u0000.safetensors"}) {
    const std::string text = fmt::format(R"({{"weight_map": {{"t": "{}"}}}})", name);
    EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { parse_weight_index(text, "i.json"); }),
                AllOf(HasSubstr("i.json: weight_map.t"), HasSubstr("plain name")))
        << name;
  }
  for (const char* text : {R"({"weight_map": {"t": "a.bin"}})", R"({"weight_map": {"t": 1}})",
                           R"({"weight_map": {}})", R"({"weight_map": []})", "{}", "[]"}) {
    message_of(ErrorCode::kCorruptData, [&] { parse_weight_index(text, "i.json"); });
  }
}

TEST(FindModelFolder, TakesFoldersAsTheyAre) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(find_model_folder(folder.path().string(), "/nowhere"), folder.path());
  write(folder.path() / "x.gguf", "GGUF");
  EXPECT_THAT(
      message_of(ErrorCode::kInvalidArgument,
                 [&] { find_model_folder((folder.path() / "x.gguf").string(), "/nowhere"); }),
      HasSubstr("is a GGUF file, which Longhaul does not read; give the folder"));
}

TEST(FindModelFolder, ReadsTheHubCache) {
  const test::TemporaryFolder cache;
  const fs::path repository = cache.path() / "models--org--name";
  write(repository / "refs/main", "0123abc");
  write(repository / "refs/refs/pr/1", "0123abc\n");
  write(repository / "refs/gone", "ffff");
  write(repository / "refs/bad", "../../..");
  write(repository / "snapshots/0123abc/config.json", kConfig);
  write(cache.path() / "models--gpt2/snapshots/77/config.json", kConfig);
  const fs::path snapshot = repository / "snapshots/0123abc";
  EXPECT_EQ(find_model_folder("org/name", cache.path()), snapshot);
  EXPECT_EQ(find_model_folder("org/name@main", cache.path()), snapshot);
  EXPECT_EQ(find_model_folder("org/name@0123abc", cache.path()), snapshot);
  EXPECT_EQ(find_model_folder("org/name@refs/pr/1", cache.path()), snapshot);
  EXPECT_EQ(find_model_folder("gpt2@77", cache.path()), cache.path() / "models--gpt2/snapshots/77");

  const auto refusal = [&](std::string_view model) {
    return message_of(ErrorCode::kInvalidArgument, [&] { find_model_folder(model, cache.path()); });
  };
  EXPECT_THAT(refusal("org/other"),
              AllOf(HasSubstr("models--org--other"), HasSubstr("hf download org/other")));
  EXPECT_THAT(refusal("org/name@v2"), AllOf(HasSubstr("revision v2"), HasSubstr("snapshots/v2")));
  EXPECT_THAT(refusal("org/name@gone"), HasSubstr("names commit ffff"));
  EXPECT_THAT(refusal("org/name@bad"), HasSubstr("does not hold the name of a commit"));
  for (const char* model : {"", "/no/such", "org/name/x", "../x", "org/..", "org/name@../x",
                            "org/name@", "or g/name", "org/name@main/../../x"}) {
    EXPECT_THAT(refusal(model), HasSubstr("model '")) << model;
  }
}

TEST(ModelFolder, ReadsTheRealModels) {
  for (const char* name : {"needle", "stories260K"}) {
    const std::string folder = fmt::format("models/{}", name);
    LONGHAUL_SKIP_UNLESS_SHARED(folder);
    const ModelFolder model(test::shared_path(folder));
    const ModelSpec& spec = model.config().spec;
    const TensorBytes q = model.tensor("model.layers.0.self_attn.q_proj.weight");
    EXPECT_THAT(q.shape, testing::ElementsAre(spec.n_heads * spec.head_dim, spec.d_model));
    EXPECT_EQ(model.has_tensor("lm_head.weight"), !spec.tied_embeddings);
    EXPECT_TRUE(fs::exists(model.tokenizer_path()));
  }
}

}  // namespace
}  // namespace longhaul
