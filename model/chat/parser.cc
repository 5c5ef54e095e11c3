// The half of the parser that reads text, tags and blocks.
#include "model/chat/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/chat/names_check.h"

namespace longhaul::chat {
namespace {

constexpr std::array<std::string_view, 8> kUnsupportedTags = {
    "include", "extends", "import", "from", "block", "autoescape", "trans", "do"};

class Parser {
 public:
  explicit Parser(ParserState& state) : s_(state) {}

  // Statements up to a tag that begins with one of `ends`, which stays; or to the end of the
  // template.
  Block block(std::initializer_list<std::string_view> ends) {
    const ParserState::Level level(s_);
    Block statements;
    while (!s_.is(TokenKind::kEnd)) {
      if (s_.is(TokenKind::kBlockBegin) && s_.ahead().kind == TokenKind::kName &&
          std::find(ends.begin(), ends.end(), s_.ahead().text) != ends.end())
        return statements;
      statements.push_back(statement());
    }
    if (ends.size() > 0) s_.fail(fmt::format("{{% {} %}} is missing", *(ends.end() - 1)));
    return statements;
  }

 private:
  const Statement* statement() {
    const int line = s_.now().line;
    if (s_.is(TokenKind::kText)) {
      Statement& text = s_.make_statement(StatementKind::kText, line);
      text.text = s_.take().text;
      return &text;
    }
    if (s_.is(TokenKind::kPrintBegin)) {
      s_.take();
      Statement& print = s_.make_statement(StatementKind::kPrint, line);
      print.expression = parse_tuple_or_one(s_, /*with_condition=*/true);
      s_.expect(TokenKind::kPrintEnd, "}}");
      return &print;
    }
    s_.expect(TokenKind::kBlockBegin, "a tag");
    return tag(line);
  }

  const Statement* tag(int line) {
    const std::string name = s_.expect_name("the name of a tag");
    if (name == "if") return if_block(line);
    if (name == "for") return for_block(line);
    if (name == "set") return set(line);
    if (name == "macro") return macro(line);
    if (name == "call") return call_block(line);
    if (name == "filter") return filter_block(line);
    if (name == "with") return with_block(line);
    if (name == "generation") return generation(line);
    if (name == "break" || name == "continue") return jump(name, line);
    if (std::find(kUnsupportedTags.begin(), kUnsupportedTags.end(), name) != kUnsupportedTags.end())
      s_.unsupported(fmt::format("{{% {} %}} is not supported", name), line);
    s_.fail(fmt::format("unexpected tag {{% {} %}}", name), line);
  }

  void end_tag() { s_.expect(TokenKind::kBlockEnd, "%}"); }

  // The tag that `block` stopped at.
  std::string end_name() {
    s_.take();
    return s_.take().text;
  }

  Block body(std::string_view end) {
    end_tag();
    Block statements = block({end});
    end_name();
    if (end == "endmacro" && s_.is(TokenKind::kName)) s_.take();  // {% endmacro name %}
    end_tag();
    return statements;
  }

  const Statement* if_block(int line) {
    Statement& statement = s_.make_statement(StatementKind::kIf, line);
    std::string name = "if";
    while (name != "endif") {
      Branch branch;
      if (name != "else") branch.condition = parse_tuple_or_one(s_, /*with_condition=*/false);
      end_tag();
      branch.body = name == "else" ? block({"endif"}) : block({"elif", "else", "endif"});
      statement.branches.push_back(std::move(branch));
      name = end_name();
    }
    end_tag();
    return &statement;
  }

  const Statement* for_block(int line) {
    Statement& loop = s_.make_statement(StatementKind::kFor, line);
    loop.target = target();
    if (!s_.skip_name("in")) s_.fail("expected \"in\"");
    loop.expression = parse_tuple_or_one(s_, /*with_condition=*/false);
    if (s_.skip_name("if")) loop.condition = parse_expression(s_);
    if (s_.is_name("recursive")) s_.unsupported("recursive loops are not supported");
    end_tag();
    ++n_loops_;
    loop.body = block({"else", "endfor"});
    --n_loops_;
    if (end_name() == "else") {
      end_tag();
      loop.otherwise = block({"endfor"});
      end_name();
    }
    end_tag();
    return &loop;
  }

  Target target() {
    Target target;
    const bool in_brackets = s_.skip_operator("(");
    target.names.push_back(s_.expect_name("a name to set"));
    if (!in_brackets && s_.skip_operator(".")) {
      target.attribute = s_.expect_name("an attribute's name");
      return target;
    }
    while (s_.skip_operator(",")) {
      target.is_tuple = true;
      if (!s_.is(TokenKind::kName) || s_.is_name("in")) break;
      target.names.push_back(s_.expect_name("a name to set"));
    }
    if (in_brackets) s_.expect_operator(")");
    return target;
  }

  const Statement* set(int line) {
    Target where = target();
    if (s_.skip_operator("=")) {
      Statement& statement = s_.make_statement(StatementKind::kSet, line);
      statement.target = std::move(where);
      statement.expression = parse_tuple_or_one(s_, /*with_condition=*/true);
      end_tag();
      return &statement;
    }
    if (where.is_tuple) s_.fail("a {% set %} block has one name");
    Statement& statement = s_.make_statement(StatementKind::kSetBlock, line);
    statement.target = std::move(where);
    if (s_.skip_operator("|")) statement.filters = block_filters(line);
    statement.body = body("endset");
    return &statement;
  }

  const Expression* block_filters(int line) {
    Expression& inner = s_.make(ExpressionKind::kName, line);
    inner.name = kBlockText;
    return parse_filters(s_, s_.done(inner));
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> list;
    s_.expect_operator("(");
    while (!s_.skip_operator(")")) {
      if (!list.empty()) s_.expect_operator(",");
      if (s_.skip_operator(")")) break;
      Parameter parameter{s_.expect_name("a parameter's name")};
      if (s_.skip_operator("=")) {
        parameter.initial = parse_expression(s_);
      } else if (!list.empty() && list.back().initial != nullptr) {
        s_.fail("a parameter without a default follows one with a default");
      }
      list.push_back(std::move(parameter));
    }
    return list;
  }

  const Statement* macro(int line) {
    Statement& statement = s_.make_statement(StatementKind::kMacro, line);
    statement.text = s_.expect_name("the macro's name");
    statement.parameters = parameters();
    const int loops = std::exchange(n_loops_, 0);
    statement.body = body("endmacro");
    n_loops_ = loops;
    return &statement;
  }

  const Statement* call_block(int line) {
    Statement& statement = s_.make_statement(StatementKind::kCallBlock, line);
    if (s_.is_operator("(")) statement.parameters = parameters();
    statement.expression = parse_expression(s_);
    if (statement.expression->kind != ExpressionKind::kCall) s_.fail("expected a call", line);
    const int loops = std::exchange(n_loops_, 0);
    statement.body = body("endcall");
    n_loops_ = loops;
    return &statement;
  }

  const Statement* filter_block(int line) {
    Statement& statement = s_.make_statement(StatementKind::kFilterBlock, line);
    statement.filters = block_filters(line);
    statement.body = body("endfilter");
    return &statement;
  }

  const Statement* with_block(int line) {
    Statement& statement = s_.make_statement(StatementKind::kWith, line);
    while (!s_.is(TokenKind::kBlockEnd)) {
      if (!statement.assignments.empty()) s_.expect_operator(",");
      Target where = target();
      s_.expect_operator("=");
      statement.assignments.emplace_back(std::move(where), parse_expression(s_));
    }
    statement.body = body("endwith");
    return &statement;
  }

  const Statement* generation(int line) {
    Statement& statement = s_.make_statement(StatementKind::kScope, line);
    const int loops = std::exchange(n_loops_, 0);
    statement.body = body("endgeneration");
    n_loops_ = loops;
    return &statement;
  }

  const Statement* jump(const std::string& name, int line) {
    if (n_loops_ == 0) s_.fail(fmt::format("{{% {} %}} stands outside a loop", name), line);
    Statement& statement =
        s_.make_statement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
    end_tag();
    return &statement;
  }

  ParserState& s_;
  int n_loops_ = 0;  // around the statement at hand
};

}  // namespace

Syntax parse_template(std::string_view text, std::string_view source) {
  Syntax syntax;
  ParserState state(
      text.size() <= kMaxTemplateBytes ? tokens_of(text, source) : std::vector<Token>(1),
      std::string(source), syntax);
  if (text.size() > kMaxTemplateBytes)
    state.fail(fmt::format("a template may have {} bytes, this one has {}", kMaxTemplateBytes,
                           text.size()));
  syntax.top = Parser(state).block({});
  check_called_names(syntax, state);
  return syntax;
}

}  // namespace longhaul::chat
