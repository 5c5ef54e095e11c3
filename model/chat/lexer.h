// A template's text as tokens, with the white space that Hugging Face's settings take away
// (trim_blocks, lstrip_blocks) and "-" and "+" in tags. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::chat {

enum class TokenKind {
  kText,  // outside tags
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// Throws kCorruptData: "<source>:<line>: <reason>". Ends with a kEnd.
std::vector<Token> tokens_of(std::string_view text, std::string_view source);

}  // namespace longhaul::chat
