// Single flipped bits in weights changed answers without a word.
#include "tools/job/weight_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "tests/support/paths.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string message_of(ErrorCode code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

class WeightCheck : public testing::Test {
 protected:
  WeightCheck() {
    replace_file(folder() / "config.json", "{}");
    replace_file(folder() / "model-00001-of-00002.safetensors", "weights one");
    replace_file(folder() / "model-00002-of-00002.safetensors", "weights two");
  }
  const fs::path& folder() const { return folder_.path(); }
  test::TemporaryFolder folder_;
};

TEST_F(WeightCheck, AFlippedBitOfTheWeightsIsNoticed) {
  const fs::path list = folder() / "longhaul.sha256";
  replace_file(list, to_text(checksums_of(folder())));
  verify_weights(folder(), "");
  replace_file(folder() / "model-00002-of-00002.safetensors", "weights twn");
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { verify_weights(folder(), ""); }),
              HasSubstr("model-00002-of-00002.safetensors: SHA-256 should be"));
  fs::remove(folder() / "model-00002-of-00002.safetensors");
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { verify_weights(folder(), list); }),
              HasSubstr("model-00002-of-00002.safetensors is not there"));
}

TEST_F(WeightCheck, AChangedChatTemplateIsNoticed) {
  replace_file(folder() / "chat_template.jinja", "{{ messages }}");
  replace_file(folder() / "longhaul.sha256", to_text(checksums_of(folder())));
  verify_weights(folder(), "");
  replace_file(folder() / "chat_template.jinja", "{{ message }}");
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { verify_weights(folder(), ""); }),
              HasSubstr("chat_template.jinja: SHA-256 should be"));
}

TEST_F(WeightCheck, WithoutKnownChecksumsItSaysHowToMakeThem) {
  EXPECT_THAT(message_of(ErrorCode::kInvalidArgument, [&] { verify_weights(folder(), ""); }),
              HasSubstr("longhaul checksum -m"));
}

TEST_F(WeightCheck, TakesWhatTheHubSaid) {
  const fs::path blobs = folder() / "blobs";
  const fs::path snapshot = folder() / "snapshots" / "main";
  fs::create_directories(blobs);
  fs::create_directories(snapshot);
  replace_file(blobs / sha256_of("good"), "good");
  fs::create_symlink(blobs / sha256_of("good"), snapshot / "model.safetensors");
  verify_weights(snapshot, "");
  replace_file(blobs / sha256_of("good"), "bad");
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { verify_weights(snapshot, ""); }),
              HasSubstr("model.safetensors: SHA-256 should be"));

  const fs::path metadata = folder() / ".cache" / "huggingface" / "download";
  fs::create_directories(metadata);
  for (const char* name : {"model-00001-of-00002", "model-00002-of-00002"}) {
    const std::string file = std::string(name) + ".safetensors";
    replace_file(metadata / (file + ".metadata"),
                 "commit\n" + sha256_of(read_file(folder() / file, 100)) + "\n1700000000.0\n");
  }
  verify_weights(folder(), "");
}

TEST(Checksums, ReadWhatSha256sumWrites) {
  const std::string digits = sha256_of("x");
  const std::vector<FileChecksum> want = {{"a b.safetensors", digits}, {"c", digits}};
  EXPECT_EQ(parse_checksums(to_text(want), "list"), want);
  EXPECT_EQ(parse_checksums("# comment\n\n" + digits + " *a b.safetensors\n" + digits + "  c", "l"),
            want);
  for (const std::string& line : {std::string("short  c"), digits, digits + "  ", digits + " xc",
                                  digits.substr(1) + "g  c"}) {
    EXPECT_THAT(message_of(ErrorCode::kCorruptData,
                           [&] { parse_checksums(digits + "  c\n" + line + "\n", "list"); }),
                HasSubstr("list:2: expected 64 hexadecimal digits"));
  }
}

// The first line counted, and the file could be what the second one says.
TEST(Checksums, AFileThatIsListedTwiceIsRefused) {
  const std::string lines = fmt::format("{0}  a\n{1}  b\n{1}  a\n", sha256_of("x"), sha256_of("y"));
  EXPECT_THAT(message_of(ErrorCode::kCorruptData, [&] { parse_checksums(lines, "list"); }),
              HasSubstr("list:3: a is listed already, in line 1"));
}

}  // namespace
}  // namespace longhaul
