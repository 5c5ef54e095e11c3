// Published chat templates, byte for byte as Hugging Face transformers renders them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
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

}  // namespace
}  // namespace longhaul::chat
