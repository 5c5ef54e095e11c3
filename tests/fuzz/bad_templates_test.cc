// Bad chat templates, made from published ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "model/chat/chat_template.h"
#include "tests/fuzz/bad_inputs.h"
#include "tests/fuzz/read_inputs.h"
#include "tests/support/paths.h"

namespace longhaul::test {
namespace {

std::string published(const std::string& name) {
  return read_file(source_path("tests/golden/chat/templates/" + name + ".jinja"), 1 << 20);
}

// Every `wanted` of the text, each replaced alone.
void add_replaced(std::string_view good, std::string_view wanted, std::string_view by,
                  std::vector<BadInput>& bad) {
  for (std::size_t at = good.find(wanted); at != std::string_view::npos;
       at = good.find(wanted, at + wanted.size())) {
    std::string bytes(good);
    bytes.replace(at, wanted.size(), by);
    bad.push_back(
        {.what = fmt::format("\"{}\" at {} is \"{}\"", wanted, at, by), .bytes = std::move(bytes)});
  }
}

void add_bad_tags(std::string_view good, std::vector<BadInput>& bad) {
  for (const std::string_view begin : {"{%", "{{"}) {
    for (std::size_t at = good.find(begin); at != std::string_view::npos;
         at = good.find(begin, at + 2))
      bad.push_back({.what = fmt::format("cut off inside the tag at {}", at),
                     .bytes = std::string(good.substr(0, at + 2))});
  }
  add_replaced(good, "endif", "endwhen", bad);
  add_replaced(good, "endfor", "endloop", bad);
  add_replaced(good, "{%- if ", "{%- if if ", bad);
  add_replaced(good, "{%- set ", "{%- import ", bad);
  add_replaced(good, "{{- ", "{{- ) ", bad);
  add_replaced(good, "|tojson", "|tojsonl", bad);
  add_replaced(good, "| tojson", "| to json", bad);
  add_replaced(good, " %}", " @ %}", bad);
  add_replaced(good, "['role']", "['role'", bad);
  add_replaced(good, "raise_exception(", "open_file(", bad);
}

const Reader& reader() {
  static const Reader kReader{
      .name = "chat template",
      .source = std::string(kInputName),
      .good = {published("mistral-v3-tekken"), published("qwen2.5"), published("own-header")},
      .parse = read_chat_template,
      .targeted = add_bad_tags,
      .n_random = 150};
  return kReader;
}

TEST(BadInputs, OfChatTemplatesAreRefusedByName) {
  EXPECT_GE(check_reader(reader()).refused, 300U);
}

// They are refused when they are read, before any conversation is.
TEST(BadInputs, OfChatTemplatesAreRefusedBeforeTheyRender) {
  std::vector<BadInput> bad;
  for (const std::string& good : reader().good) add_bad_tags(good, bad);
  ASSERT_GE(bad.size(), 300U);
  for (const BadInput& input : bad) {
    SCOPED_TRACE(input.what);
    EXPECT_THROW(chat::ChatTemplate::parse(input.bytes, kInputName), Error);
  }
}

}  // namespace
}  // namespace longhaul::test
