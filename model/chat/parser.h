// Tokens to a tree, by Jinja's grammar as Hugging Face sets it up (with {% break %}, {% continue %}
// and {% generation %}). What is not supported is refused here, with its line. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/lexer.h"
#include "model/chat/syntax.h"

namespace longhaul::chat {

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

// Throws kCorruptData (syntax) or kUnsupported: "<source>:<line>: <reason>".
Syntax parse_template(std::string_view text, std::string_view source);

// The tokens that are left, and the tree that grows. Used by both halves of the parser.
class ParserState {
 public:
  ParserState(std::vector<Token> tokens, std::string source, Syntax& syntax);

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead(std::size_t n = 1) const;
  Token take();
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_operator(std::string_view text) const;
  bool is_name(std::string_view text) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name(std::string_view what);

  // A new expression at the line of `now`, or of `line`.
  Expression& make(ExpressionKind kind, int line = 0);
  // Counts the depth of its parts; call when all are there. Throws when there are too many levels.
  const Expression* done(Expression& expression);
  Statement& make_statement(StatementKind kind, int line);

  [[noreturn]] void fail(std::string_view reason, int line = 0) const;         // bad syntax
  [[noreturn]] void unsupported(std::string_view reason, int line = 0) const;  // good, but not here

  // Guards the parser's own recursion.
  class Level {
   public:
    explicit Level(ParserState& state);
    ~Level() { --state_.level_; }

   private:
    ParserState& state_;
  };

 private:
  std::vector<Token> tokens_;
  std::string source_;
  Syntax& syntax_;
  std::size_t at_ = 0;
  int level_ = 0;
};

// Expressions; each returns a part of the syntax.
const Expression* parse_expression(ParserState& state);
const Expression* parse_without_condition(ParserState& state);  // a b, but no "a if b"
// a, b, c without brackets is a tuple. `with_condition`: its parts may be "a if b else c".
const Expression* parse_tuple_or_one(ParserState& state, bool with_condition);
// name(arguments) | name ... around `inner`, the bar before the first already read.
const Expression* parse_filters(ParserState& state, const Expression* inner);

}  // namespace longhaul::chat
