// Published chat templates, byte for byte as Hugging Face transformers renders them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "model/chat/chat_template.h"
#include "model/chat/conversation.h"
#include "tests/support/paths.h"

namespace longhaul::chat {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

fs::path folder() { return test::source_path("tests/golden/chat"); }

Json stored(const std::string& name) {
  const fs::path path = folder() / "stored" / (name + ".json");
  return parse_json(read_file(path, kMaxBytes), path.string());
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder() / "templates"))
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The time that make_chat_goldens.py says.
std::tm fixed_clock() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 2;
  now.tm_mday = 5;
  now.tm_wday = 4;
  now.tm_yday = 63;
  now.tm_hour = 9;
  now.tm_min = 7;
  now.tm_sec = 8;
  return now;
}

// The rendering, or why there is none.
struct Outcome {
  std::optional<std::string> text;
  std::string error;
};
Outcome outcome_of(const ChatTemplate& chat, const Json& conversation, const Json& golden) {
  const Json variables = template_variables(conversation);
  const Json* prompt = conversation.find("add_generation_prompt");
  RenderRequest request{
      .variables = &variables,
      .bos_token = JsonField(golden, "golden").at("bos_token").as_string(),
      .eos_token = JsonField(golden, "golden").at("eos_token").as_string(),
      .add_generation_prompt = prompt == nullptr || std::get<bool>(prompt->value()),
      .now = fixed_clock()};
  try {
    return {chat.render(request).bytes(), ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

class PublishedTemplates : public testing::TestWithParam<std::string> {};

TEST_P(PublishedTemplates, RenderAsTransformersDoes) {
  const fs::path path = folder() / "templates" / (GetParam() + ".jinja");
  const ChatTemplate chat = ChatTemplate::parse(read_file(path, kMaxBytes), path.string());
  const Json golden = stored(GetParam());
  const Json conversations = stored("conversations");
  const auto& list = std::get<JsonArray>(conversations.value());
  const auto& renderings = std::get<JsonArray>(golden.find("renderings")->value());
  ASSERT_EQ(list.size(), renderings.size());
  ASSERT_GE(list.size(), 30U);
  for (std::size_t i = 0; i < list.size(); ++i) {
    SCOPED_TRACE(fmt::format("conversation {}", i));
    const Outcome outcome = outcome_of(chat, list[i], golden);
    if (renderings[i].is_null()) {
      EXPECT_FALSE(outcome.text.has_value()) << *outcome.text;
    } else {
      EXPECT_EQ(outcome.text.value_or(outcome.error), std::get<std::string>(renderings[i].value()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, PublishedTemplates, testing::ValuesIn(template_names()),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

// Templates whose licences do not let them lie here: only hashes do, of them and of what
// transformers renders. fetch_restricted_templates.py brings the templates.
TEST(RestrictedTemplates, RenderAsTransformersDoes) {
  if (!fs::is_directory(folder() / "fetched"))
    GTEST_SKIP() << "run tests/golden/chat/fetch_restricted_templates.py to check these too";
  const Json all = stored("restricted");
  const Json conversations = stored("conversations");
  const auto& list = std::get<JsonArray>(conversations.value());
  for (const auto& [name, golden] : std::get<JsonObject>(all.value())) {
    SCOPED_TRACE(name);
    const fs::path path = folder() / "fetched" / (name + ".jinja");
    const std::string text = read_file(path, kMaxBytes);
    ASSERT_EQ(sha256_of(text), JsonField(golden, name).at("sha256").as_string());
    const ChatTemplate chat = ChatTemplate::parse(text, path.string());
    const auto& hashes = std::get<JsonArray>(golden.find("rendering_sha256")->value());
    ASSERT_EQ(list.size(), hashes.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      SCOPED_TRACE(fmt::format("conversation {}", i));
      const Outcome outcome = outcome_of(chat, list[i], golden);
      ASSERT_EQ(outcome.text.has_value(), hashes[i].is_string()) << outcome.error;
      if (outcome.text) {
        EXPECT_EQ(sha256_of(*outcome.text), std::get<std::string>(hashes[i].value()));
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::chat
