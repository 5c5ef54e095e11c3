// Weights that were changed between samples were once taken for the same model.
#include "coordinator/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/sha256.h"
#include "model/safetensors.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Fingerprint : public testing::Test {
 protected:
  Fingerprint() {
    fs::copy(test::example_path("model"), folder_.path(), fs::copy_options::recursive);
    weights_ = read_file(file(), std::size_t{1} << 30);
  }
  fs::path file() const { return folder_.path() / "model.safetensors"; }
  Json now() const { return model_fingerprint(ModelFolder(folder_.path())); }
  ModelFolder model() const { return ModelFolder(folder_.path()); }

  test::TemporaryFolder folder_;
  std::string weights_;
};

TEST_F(Fingerprint, AnyTensorThatIsReplacedIsNoticed) {
  const Json before = now();
  const auto header =
      SafetensorsFile::parse_header(std::as_bytes(std::span(weights_)), file().string());
  ASSERT_GT(header.entries.size(), 30U);
  for (const auto& [name, entry] : header.entries) {
    std::string changed = weights_;
    for (std::size_t i = entry.begin; i < entry.end; ++i) changed[header.data_offset + i] ^= 1;
    replace_file(file(), changed);
    const std::vector<Difference> found = find_differences(before, now());
    ASSERT_EQ(found.size(), 1U) << name;
    EXPECT_EQ(found[0].path, "weights.model.safetensors.sampled_sha256");
  }
  replace_file(file(), weights_);
  EXPECT_TRUE(find_differences(before, now()).empty());
}

TEST_F(Fingerprint, FilesThatAreNoSafetensorsHaveOneToo) {
  replace_file(folder_.path() / "other.safetensors", std::string(std::size_t{3} << 20, 'x'));
  const Json before = now();
  replace_file(folder_.path() / "other.safetensors", std::string(std::size_t{3} << 20, 'y'));
  EXPECT_EQ(find_differences(before, now()).size(), 1U);
}

// As releases before the samples of tensors wrote it: 16 samples of 64 KiB, and the end.
std::string earlier_samples(std::string_view text) {
  constexpr std::size_t kSampleBytes = std::size_t{64} << 10;
  const std::size_t last = text.size() - kSampleBytes;
  std::string samples;
  for (std::size_t i = 0; i < 16; ++i) samples += text.substr(last / 15 * i, kSampleBytes);
  return sha256_of(samples + std::string(text.substr(last)));
}

TEST_F(Fingerprint, OfAnEarlierReleaseIsToldFromThatOfAnotherModel) {
  const Json earlier = JsonObject{
      {"model.safetensors", JsonObject{{"bytes", static_cast<std::int64_t>(weights_.size())},
                                       {"sampled_sha256", earlier_samples(weights_)}}}};
  const std::vector<std::string> found = differences(
      JsonObject{{"weights", earlier}}, JsonObject{{"weights", *now().find("weights")}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0], HasSubstr("(by an earlier release, which hashed other samples"));
  // Profiles that were made for these weights are taken still.
  EXPECT_TRUE(may_be_of_weights(sha256_of(to_text(earlier)), model()));
  EXPECT_TRUE(may_be_of_weights(*weights_sha256(model()), model()));
  EXPECT_FALSE(may_be_of_weights(sha256_of("another model"), model()));
}

}  // namespace
}  // namespace longhaul
