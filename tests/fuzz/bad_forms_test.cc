// Damaged forms: each is refused with longhaul::Error or read without fault, in bounded time.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tests/fuzz/read_inputs.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

constexpr std::array<std::string_view, 6> kGood = {
    R"(r(?:[a-c]{2,5}|.\d)*x?)",
    R"(r^(?P<day>\d{1,2})\.(?:[^\W_]|\u00e9|\x41)+?\s{,3}$)",
    R"(c["yes", "no", "n\u00f6"])",
    R"(s{"type":"object","properties":{"a":{"type":"string","pattern":"^[ab]+$","maxLength":5},"b":{"anyOf":[{"$ref":"#"},{"type":"number","minimum":-1.5}]}},"required":["a"]})",
    R"(s{"$defs":{"n":{"type":["integer","null"],"exclusiveMaximum":7}},"type":"array","prefixItems":[{"$ref":"#/$defs/n"}],"items":{"enum":[1,"x",{"k":[]}]},"minItems":1,"maxItems":4})",
    R"(s{"type":"object","additionalProperties":{"type":"string","format":"date-time"},"properties":{"q\"":true}})"};

std::string damaged(std::string_view good, Random& random) {
  std::string text(good);
  for (std::int64_t n = random.integer(1, 4); n > 0 && text.size() > 1; --n) {
    const auto at =
        static_cast<std::size_t>(random.integer(1, static_cast<std::int64_t>(text.size()) - 1));
    switch (random.integer(0, 4)) {
      case 0:
        text[at] = static_cast<char>(random.integer(0, 255));
        break;
      case 1:
        text.erase(at, static_cast<std::size_t>(random.integer(1, 9)));
        break;
      case 2:
        text.insert(at, text.substr(at / 2, static_cast<std::size_t>(random.integer(1, 30))));
        break;
      case 3:
        text.resize(at);
        break;
      default:
        text[at] = "{}[]()*+?|\\^$\"0,:"[random.integer(0, 16)];
    }
  }
  return text;
}

TEST(BadInputs, OfFormsAreRefusedOrRead) {
  Random random(base_seed());
  int n_refused = 0;
  for (const std::string_view good : kGood) {
    EXPECT_NO_THROW(read_form(good)) << good;
    for (int i = 0; i < 300 * intensity(); ++i) {
      const std::string text = damaged(good, random);
      SCOPED_TRACE(text);
      try {
        read_form(text);
      } catch (const Error& error) {
        EXPECT_NE(std::string_view(error.what()), "");
        ++n_refused;
      }
    }
  }
  EXPECT_GT(n_refused, 500);
}

}  // namespace
}  // namespace longhaul::test
