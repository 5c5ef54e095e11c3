// Which bytes of a rendered text came from the conversation.
#include "model/chat/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/chat/chat_template.h"

namespace longhaul::chat {
namespace {

std::string marked(const Text& text) {
  std::string out = text.bytes();
  for (std::size_t i = text.data().size(); i-- > 0;) {
    out.insert(text.data()[i].end, "]");
    out.insert(text.data()[i].begin, "[");
  }
  return out;
}

std::string traced(std::string_view source, std::string_view variables) {
  const Json json = parse_json(variables, "variables");
  return marked(ChatTemplate::parse(source, "t").render({.variables = &json, .bos_token = "<s>"}));
}

TEST(ChatText, KeepsMarksWhenItIsJoinedAndCut) {
  Text text("head ", Origin::kTemplate);
  text.append("data", Origin::kData);
  text.append("more", Origin::kData);
  text.append(" tail", Origin::kTemplate);
  EXPECT_EQ(marked(text), "head [datamore] tail");
  EXPECT_EQ(marked(text.part(3, 7)), "d [da]");
  EXPECT_EQ(marked(text.part(13, 16)), " ta");
}

TEST(ChatText, KnowsDataWhateverFiltersDo) {
  const std::string_view variables = R"({"m": {"role": "user", "content": "  <s> A\nb "}})";
  EXPECT_EQ(traced("{{ bos_token + m.role }}", variables), "<s>[user]");
  EXPECT_EQ(traced("{{ '<s>' ~ m.content | trim ~ '</s>' }}", variables), "<s>[<s> A\nb]</s>");
  EXPECT_EQ(traced("{{ m.content.strip().split('\\n')[1] + '<s>' }}", variables), "[b]<s>");
  EXPECT_EQ(traced("{{ ('<s>' + m.role) | upper }}", variables), "<S>[USER]");
  EXPECT_EQ(traced("{{ 'a-b' | replace('-', m.role) }}", variables), "a[user]b");
  EXPECT_EQ(traced("{{ '<s>%s' | format(m.role) }}", variables), "<s>[user]");
  EXPECT_EQ(traced("{{ {'x': m.role} | tojson }}", variables), "{\"x\": [\"user\"]}");
  EXPECT_EQ(traced("{% set x %}<s>{{ m.role }}{% endset %}{{ x }}", variables), "<s>[user]");
  EXPECT_EQ(traced("{% macro f(x) %}<s>{{ x }}{% endmacro %}{{ f(m.role) }}", variables),
            "<s>[user]");
  EXPECT_EQ(traced("{% for k in m %}{{ k }},{% endfor %}", variables), "[role],[content],");
}

}  // namespace
}  // namespace longhaul::chat
