// Forms over single bytes: whether a text has a form.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/forms/form.h"

namespace longhaul::test {

// Token i is the byte i.
inline std::shared_ptr<const forms::TokenTrie> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<const forms::TokenTrie>(tokens);
}

class Words {
 public:
  explicit Words(const forms::FormSource& source)
      : form_(std::make_shared<forms::Form>(source, byte_vocabulary())) {}

  bool has(std::string_view text) const {
    forms::FormCursor cursor(form_);
    return cursor.advance(text) && cursor.may_end();
  }
  forms::FormCursor cursor() const { return forms::FormCursor(form_); }

 private:
  std::shared_ptr<forms::Form> form_;
};

inline Words regex(std::string_view pattern) {
  return Words({forms::FormKind::kRegex, std::string(pattern)});
}
inline Words schema(std::string_view text) {
  return Words({forms::FormKind::kJsonSchema, std::string(text)});
}

}  // namespace longhaul::test
