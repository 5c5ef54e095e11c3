// What all parts of the parser (parser.h) stand on: the next token, errors with their place, limits
// of depth.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/chat/parser.h"

namespace longhaul::chat {
namespace {

// Of the tree, and of the parser's own recursion. The evaluator recurses as deep.
constexpr int kMaxSyntaxDepth = 150;

}  // namespace

ParserState::ParserState(std::vector<Token> tokens, std::string source, Syntax& syntax)
    : tokens_(std::move(tokens)), source_(std::move(source)), syntax_(syntax) {}

ParserState::Level::Level(ParserState& state) : state_(state) {
  if (++state_.level_ > kMaxSyntaxDepth * 3) {
    --state_.level_;
    state_.fail("the template is nested too deeply");
  }
}

const Token& ParserState::ahead(std::size_t n) const {
  return tokens_[std::min(at_ + n, tokens_.size() - 1)];
}

Token ParserState::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ParserState::is_operator(std::string_view text) const {
  return is(TokenKind::kOperator) && now().text == text;
}

bool ParserState::is_name(std::string_view text) const {
  return is(TokenKind::kName) && now().text == text;
}

bool ParserState::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  take();
  return true;
}

bool ParserState::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  take();
  return true;
}

void ParserState::expect_operator(std::string_view text) {
  if (!skip_operator(text))
    fail(fmt::format("expected \"{}\", found \"{}\"", text, now().text.substr(0, 40)));
}

void ParserState::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) fail(fmt::format("expected {}, found \"{}\"", what, now().text.substr(0, 40)));
  take();
}

std::string ParserState::expect_name(std::string_view what) {
  if (!is(TokenKind::kName)) fail(fmt::format("expected {}", what));
  return take().text;
}

Expression& ParserState::make(ExpressionKind kind, int line) {
  Expression& e = syntax_.expressions.emplace_back();
  e.kind = kind;
  e.line = line > 0 ? line : now().line;
  return e;
}

const Expression* ParserState::done(Expression& e) {
  for (const Expression* part : e.parts)
    if (part != nullptr) e.depth = std::max(e.depth, 1 + part->depth);
  for (const auto& [name, part] : e.named) e.depth = std::max(e.depth, 1 + part->depth);
  if (e.depth > kMaxSyntaxDepth) fail("the expression is nested too deeply", e.line);
  return &e;
}

Statement& ParserState::make_statement(StatementKind kind, int line) {
  Statement& statement = syntax_.statements.emplace_back();
  statement.kind = kind;
  statement.line = line;
  return statement;
}

void ParserState::fail(std::string_view reason, int line) const {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}:{}: {}", source_, line > 0 ? line : now().line, reason));
}

void ParserState::unsupported(std::string_view reason, int line) const {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{}:{}: {}", source_, line > 0 ? line : now().line, reason));
}

}  // namespace longhaul::chat
