// The needle model's answers about a document that is given as token ids, so that no tokenizer is
// needed: needle_tokens.json, made by make_needle_tokens.py. LONGHAUL_TEST_NEEDLE_TOKENS says how
// long the document is, 400 tokens by default; tools/dev/gpu_check.sh takes 65536 on a GPU.
#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "model/head_profile.h"
#include "model/model_folder.h"
#include "tests/gpu/worker_plays.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

using Tokens = std::vector<std::int32_t>;

std::size_t document_tokens() {
  const char* said = std::getenv("LONGHAUL_TEST_NEEDLE_TOKENS");
  return said == nullptr ? 400 : static_cast<std::size_t>(std::max(200, std::atoi(said)));
}

struct NeedleRecordTokens {
  Tokens record;
  Tokens question;
  Tokens answer;
};

struct NeedleTokenFile {
  Tokens start;
  Tokens hay;
  std::vector<NeedleRecordTokens> records;
};

Tokens tokens_in(const JsonField& field) {
  Tokens tokens;
  for (std::size_t i = 0; i < field.size(); ++i)
    tokens.push_back(static_cast<std::int32_t>(field.at(i).as_integer(0, 1 << 20)));
  return tokens;
}

NeedleTokenFile read_needle_tokens() {
  const auto path = source_path("tests/gpu/needle_tokens.json");
  const Json json = parse_json(read_file(path, 1 << 20), path.string());
  const JsonField root(json, path.string());
  NeedleTokenFile file{
      .start = tokens_in(root.at("start")), .hay = tokens_in(root.at("hay")), .records = {}};
  const JsonField records = root.at("records");
  for (std::size_t i = 0; i < records.size(); ++i) {
    file.records.push_back({.record = tokens_in(records.at(i).at("record")),
                            .question = tokens_in(records.at(i).at("question")),
                            .answer = tokens_in(records.at(i).at("answer"))});
  }
  return file;
}

// Hay over and over, with the records at even distances.
Tokens document_of(const NeedleTokenFile& file) {
  Tokens document = file.start;
  std::size_t next = 0;
  for (std::size_t i = 0; document.size() < document_tokens(); ++i) {
    if (next < file.records.size() &&
        document.size() >= document_tokens() * (2 * next + 1) / (2 * file.records.size() + 1)) {
      const Tokens& record = file.records[next++].record;
      document.insert(document.end(), record.begin(), record.end());
    }
    document.push_back(file.hay[i % file.hay.size()]);
  }
  return document;
}

class NeedleTokens : public testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Devices, NeedleTokens, testing::Values(Device::kCpu, Device::kCuda),
                         [](const auto& tested) {
                           return tested.param == Device::kCpu ? "cpu" : "cuda";
                         });

// With caches of int4, and heads that see a window but for those of the model's profile.
TEST_P(NeedleTokens, AreAnsweredRight) {
  if (GetParam() == Device::kCuda && cuda::device_count() == 0)
    GTEST_SKIP() << "no GPU: " << cuda::why_no_device();
  const DeviceId device = GetParam() == Device::kCuda ? kGpu : DeviceId{};
  const NeedleTokenFile file = read_needle_tokens();
  const ModelFolder folder(example_path("model"));
  const HeadProfile profile = read_head_profile(example_path("profile"));
  Player player(
      {.weights = std::make_shared<const Weights>(Weights::load(folder, std::nullopt, device)),
       .device = device,
       .heads = duo_attention_heads(folder.config().spec, choose_roles(profile, std::nullopt)),
       .k_type = KvType::kInt4,
       .v_type = KvType::kInt4,
       .n_threads = 1});
  constexpr std::size_t kChunk = 2048;
  constexpr SequenceId kWholeText{0};
  player.open(kWholeText);
  player.prefill(kWholeText, document_of(file), kChunk);
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    const NeedleRecordTokens& asked = file.records[i];
    const SequenceId id{static_cast<std::int64_t>(i) + 1};
    player.step(ForkSequence{.parent = kWholeText, .child = id, .sampling = {}});
    const std::int32_t first = player.prefill(id, asked.question, kChunk);
    player.decode({id}, {first}, static_cast<int>(asked.answer.size()) - 1);
    Tokens answer;
    for (const PickedToken& picked : player.seen().picked) {
      if (picked.sequence == id) answer.push_back(picked.token);
    }
    EXPECT_EQ(answer, asked.answer) << "record " << i << " in " << document_tokens() << " tokens";
  }
}

}  // namespace
}  // namespace longhaul::test
