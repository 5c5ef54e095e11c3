// The template engine, with what Python's Jinja (3.1, set up as Hugging Face does) gives.
#include "model/chat/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul::chat {
namespace {

using testing::HasSubstr;

std::string rendered(std::string_view source, std::string_view variables = "{}") {
  const Json json = parse_json(variables, "variables");
  return ChatTemplate::parse(source, "t").render({.variables = &json}).bytes();
}

std::string error_of(std::string_view source, const RenderLimits& limits = {}) {
  const Json json = parse_json(R"({"x": "text", "l": [1, 2], "d": {"a": 1}})", "variables");
  try {
    return "no error: " +
           ChatTemplate::parse(source, "t").render({.variables = &json}, limits).bytes();
  } catch (const Error& error) {
    return error.what();
  }
}

struct Case {
  std::string source;
  std::string expected;
};
void check(std::initializer_list<Case> cases, std::string_view variables = "{}") {
  for (const Case& each : cases) {
    SCOPED_TRACE(each.source);
    try {
      EXPECT_EQ(rendered(each.source, variables), each.expected);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(ChatTemplate, TakesWhiteSpaceAwayAsItIsToldTo) {
  check({{"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
         {"a  {{ 1 }}\nb", "a  1\nb"},
         {"a \n {{- 1 -}} \n b", "a1b"},
         {"a \n {%- if true -%} \n b {%- endif %} c", "ab c"},
         {"  {%+ if true %}x{% endif %}", "  x"},
         {"{% if true +%}\nx{% endif %}", "\nx"},
         {"{# note #}\nx {#- n -#} y", "xy"},
         {"{% raw %}{{ a }}{% endraw %}!", "{{ a }}!"},
         {"x {%- raw -%} {{ a }} {%- endraw -%} y", "x{{ a }}y"},
         {"a\r\nb", "a\nb"},
         {"a\n\n", "a\n"},
         {"{{ {'a': {'b': 1}}['a']['b'] }}", "1"}});
}

TEST(ChatTemplate, ComputesAsPythonDoes) {
  check({{"{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}",
          "3 3 -4 2 3.5 1024"},
         {"{{ 1.0 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 123456.789 }}",
          "1.0 1e+16 0.30000000000000004 1e-05 123456.789"},
         {"{{ true }} {{ none }} {{ [1, 'a', none, 2.5] }} {{ (1,) }} {{ {'k': \"it's\"} }}",
          "True None [1, 'a', None, 2.5] (1,) {'k': \"it's\"}"},
         {"{{ 'ab' * 2 ~ 3 }} {{ [1] + [2] }} {{ 'a' 'b' }}", "abab3 [1, 2] ab"},
         {"{{ 1 < 2 < 3 }} {{ 'a' in 'cat' }} {{ 2 not in [1] }} {{ 1 == 1.0 }} {{ true == 1 }}",
          "True True True True True"},
         {"{{ '' or 'x' }} {{ 0 and 1 }} {{ not 1 }} {{ 'a' if 0 else 'b' }}[{{ 'a' if 0 }}]",
          "x 0 False b[]"},
         {"{{ 'hello'[1] }} {{ 'hello'[-1] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ "
          "[1,2,3][1:] }}",
          "e o el olleh [2, 3]"},
         {"{{ 'Größe'[2:4] }} {{ 'Größe' | length }} {{ 'ß' | upper }}", "öß 5 SS"},
         {"{{ '%s has %d, %.2f%%' % ('x', 3, 1.5) }}", "x has 3, 1.50%"},
         {"{{ 'a\\tb\\u00e9\\x41\\u20ac\\U0001f600' }}", "a\tb\u00e9A\u20ac\U0001F600"},
         {"{{ 1 if false else 2 if false else 3 }}", "3"}});
}

TEST(ChatTemplate, HasPythonsStringMethods) {
  check({{"{{ ' a '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' a '.lstrip() }}|{{ 'a,b,c'.split(',', "
          "1) }}",
          "a|a|a |['a', 'b,c']"},
         {"{{ ' a  b '.split() }} {{ 'a-b'.rsplit('-', 1)[-1] }} {{ 'a\\nb'.splitlines() }}",
          "['a', 'b'] b ['a', 'b']"},
         {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.find('c') }}",
          "True True 2"},
         {"{{ 'the cat'.title() }} {{ 'the CAT' | capitalize }} {{ \"it's a-b\" | title }}",
          "The Cat The cat It's A-B"},
         {"{{ 'a{}b{x}'.format(1, x=2) }} {{ 'x'.join(['1', '2']) }} {{ 'aXbX'.replace('X', '-', "
          "1) }}",
          "a1b2 1x2 a-bX"},
         {"{{ 'x'.center(4) }}|{{ '7'.zfill(3) }}|{{ 'ab'.rjust(4, '.') }}", " x  |007|..ab"},
         {"{{ 'a=b=c'.partition('=') }} {{ 'prefix'.removeprefix('pre') }} {{ 'a1'.isalnum() }}",
          "('a', '=', 'b=c') fix True"}});
}

TEST(ChatTemplate, HasLoopsAndTheirVariables) {
  check(
      {{"{% for i in [1,2,3] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% "
        "endfor %}",
        "1/3,2/3,3/3"},
       {"{% for i in range(5) if i % 2 %}{{ i }}{{ loop.first }}{% endfor %}", "1True3False"},
       {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
       {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"},
       {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}"
        "{% endif %}{{ i }}{% endfor %}",
        "013"},
       {"{% for i in 'ab' %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }}{% "
        "endfor %}",
        "bxay"},
       {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
       {"{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x "
        "}}",
        "2"},
       {"{% for i in [1,1,2] %}{{ loop.changed(i) }} {% endfor %}", "True False True "}});
}

TEST(ChatTemplate, HasMacrosAndBlocks) {
  check(
      {{"{% macro f(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }} {{ f(b=2, a=3) }}", "1B 32"},
       {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
        "3210"},
       {"{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}", "<x>"},
       {"{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}", "A1"},
       {"{% filter upper %}abc{% endfilter %}", "ABC"},
       {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", "3"},
       {"{% generation %}x{% endgeneration %}", "x"},
       {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
       {"{% if false %}a{% elif true %}b{% else %}c{% endif %}", "b"}});
}

TEST(ChatTemplate, HasFiltersAndTests) {
  check(
      {{"{{ d | tojson }}", "{\"b\": [1, 2.0, null], \"a\": \"\u00e9<&'\\n\"}"},
       {"{{ d | tojson(indent=2) }}",
        "{\n  \"b\": [\n    1,\n    2.0,\n    null\n  ],\n  \"a\": \"\u00e9<&'\\n\"\n}"},
       {"{{ d | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
        "{\"a\":\"\\u00e9<&'\\n\",\"b\":[1,2.0,null]}"},
       {"{{ [3, 1, 2] | sort | join(',') }} {{ ['b', 'A'] | sort }} {{ d | dictsort | first | "
        "first }}",
        "1,2,3 ['A', 'b'] a"},
       {"{{ l | map(attribute='n') | list }} {{ l | selectattr('n', 'equalto', 2) | "
        "map(attribute='s') | join }}",
        "[1, 2] y"},
       {"{{ l | rejectattr('s', 'in', ['x']) | list | length }} {{ [0, 1] | select | list }}",
        "1 [1]"},
       {"{{ u | default('d') }} {{ '' | default('d', true) }} {{ u is defined }} {{ u | length }}",
        "d d False 0"},
       {"{{ 1 is number }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is sequence }} {{ none is "
        "none }}",
        "True True True True True"},
       {"{{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ true is sameas true }} {{ 1 is sameas true }}",
        "True True True False"},
       {"{{ 2.5 | round }} {{ 2.345 | round(2) }} {{ '7' | int + 1 }} {{ 'x' | int(5) }} {{ -3 | "
        "abs }}",
        "2.0 2.35 8 5 3"},
       {"{{ 'a\\nb' | indent(2) }} {{ '<' | escape }} {{ [1, 2, 3, 4] | batch(3) | list }}",
        "a\n  b &lt; [[1, 2, 3], [4]]"},
       {"{{ [1, 2] | sum }} {{ [1, 2] | max }} {{ [1, 1] | unique | list }} {{ 'abc' | reverse }}",
        "3 2 [1] cba"}},
      R"({"d": {"b": [1, 2.0, null], "a": "é<&'\n"}, "l": [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]})");
}

TEST(ChatTemplate, RefusesWithTheLineBeforeAnythingIsRendered) {
  const auto refusal = [](std::string_view source) {
    try {
      ChatTemplate::parse(source, "chat.jinja");
      return std::string("taken");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal("a\n{% include 'x' %}"), "chat.jinja:2: {% include %} is not supported");
  EXPECT_EQ(refusal("{{ 1 }}\n\n{{ x | frobnicate }}"),
            "chat.jinja:3: the filter \"frobnicate\" is not supported");
  EXPECT_EQ(refusal("{{ x is odder }}"), "chat.jinja:1: the test \"odder\" is not supported");
  EXPECT_EQ(refusal("\n{{ x.encode('utf8') }}"),
            "chat.jinja:2: the method .encode() is not supported");
  EXPECT_EQ(refusal("{{ now() }}"), "chat.jinja:1: the function now() is not supported");
  EXPECT_THAT(refusal("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive loops"));
  EXPECT_THAT(refusal("{% if x %}"), HasSubstr("{% endif %} is missing"));
  EXPECT_THAT(refusal("{{ x"), HasSubstr("{{ has no }}"));
  EXPECT_THAT(refusal("{# x"), HasSubstr("no end #}"));
  EXPECT_THAT(refusal("{{ 'x }}"), HasSubstr("a string has no end"));
  EXPECT_THAT(refusal("{% endfor %}"), HasSubstr("unexpected tag {% endfor %}"));
  EXPECT_THAT(refusal("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal("{{ " + std::string(100000, '-') + "1 }}"), HasSubstr("nested too deeply"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  EXPECT_THAT(refusal(sum + " }}"), HasSubstr("nested too deeply"));
}

TEST(ChatTemplate, SaysWhereAConversationFails) {
  EXPECT_EQ(error_of("a\n{{ raise_exception('No ' ~ x) }}"),
            "t:2: the template refuses this conversation: No text");
  EXPECT_EQ(error_of("{{ y.z }}"), "t:1: \"y\" is undefined");
  EXPECT_EQ(error_of("{{ x + 1 }}"), "t:1: \"+\" does not take str and int");
  EXPECT_THAT(error_of("{{ l.append(3) }}"), HasSubstr("changes its value"));
  EXPECT_THAT(error_of("{{ 1 // 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("out of range"));
}

TEST(ChatTemplate, EndsWithinItsLimits) {
  const RenderLimits limits{.max_steps = 100'000, .max_text_bytes = 1 << 16, .max_depth = 200};
  EXPECT_THAT(
      error_of("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
               limits),
      HasSubstr("does not end within 100000 steps"));
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", limits),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("{{ 'x' * 99999999 }}", limits), HasSubstr("grows too long"));
  EXPECT_THAT(error_of("{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ "
                       "n.s %}{% endfor %}",
                       limits),
              HasSubstr("grows beyond"));
  EXPECT_THAT(error_of("{% set n = namespace(s=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] "
                       "%}{% endfor %}",
                       limits),
              HasSubstr("nested too deeply"));
  // Sixty lists that hold each other twice are printed as 2^60 items.
  const std::string doubled =
      "{% set n = namespace(l=['a'], m=['a']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% set n.m = {'k': n.m, 'j': n.m} %}{% endfor %}{{ n.l == n.m }}";
  EXPECT_THAT(error_of(doubled), HasSubstr("hold too much"));
  EXPECT_THAT(error_of("{% set big = 'a' * 100000 %}{% set l = [big] * 100000 %}"),
              HasSubstr("hold too much"));
  EXPECT_THAT(error_of("{% set n = namespace() %}{% set n.n = n %}", limits),
              HasSubstr("inside another"));
  EXPECT_THAT(error_of("{{ range(1000000) }}", limits), HasSubstr("at most 100000 items"));
}

TEST(ChatTemplate, KnowsWhetherItTakesParts) {
  const auto takes = [](std::string_view source) {
    return ChatTemplate::parse(source, "t").takes_content_parts();
  };
  EXPECT_TRUE(takes("{% for m in messages %}{% for p in m['content'] %}{% endfor %}{% endfor %}"));
  EXPECT_FALSE(takes("{% for m in messages %}{{ m.content }}{% endfor %}"));
}

}  // namespace
}  // namespace longhaul::chat
