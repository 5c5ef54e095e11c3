// Reads given forms for the tests of bad inputs and the fuzz target.
#include <memory>
#include <string>
#include <vector>

#include "model/forms/form.h"
#include "tests/fuzz/read_inputs.h"

namespace longhaul::test {
namespace {

std::shared_ptr<const forms::TokenTrie> some_tokens() {
  std::vector<std::string> tokens = {"\"a",  "\":",  "{\"",   "}}", "ab",
                                     "true", "\xc3", "\xa9x", "  "};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<const forms::TokenTrie>(tokens);
}

}  // namespace

// The first character says which kind of form the rest is; then a few allowed tokens are taken.
void read_form(std::string_view bytes) {
  using forms::FormKind;
  if (bytes.empty()) return;
  const FormKind kind = bytes[0] == 'r'   ? FormKind::kRegex
                        : bytes[0] == 'c' ? FormKind::kChoice
                                          : FormKind::kJsonSchema;
  static const auto tokens = some_tokens();
  const auto form =
      std::make_shared<forms::Form>(forms::FormSource{kind, std::string(bytes.substr(1))}, tokens);
  forms::FormCursor cursor(form);
  for (std::size_t i = 0; i < 6 && !cursor.must_end(); ++i) {
    const auto allowed = cursor.allowed();
    if (allowed->count() == 0 && !cursor.may_end()) __builtin_trap();  // a dead end
    std::int64_t left = allowed->count() / 2;
    std::int64_t picked = -1;
    allowed->for_each([&](std::int64_t id) {
      if (left-- == 0) picked = id;
    });
    if (picked < 0) return;
    const std::string token =
        picked >= 9 ? std::string(1, static_cast<char>(picked - 9)) : std::string();
    if (!token.empty() && !cursor.advance(token)) __builtin_trap();  // a mask that is wrong
  }
}

}  // namespace longhaul::test
