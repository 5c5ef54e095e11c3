// The half of the parser that reads expressions, one function for each level of precedence.
#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "model/chat/known_names.h"
#include "model/chat/parser.h"

namespace longhaul::chat {
namespace {

const Expression* parse_or(ParserState& s);
const Expression* parse_unary(ParserState& s, bool with_filters);

const Expression* constant(ParserState& s, Value value, int line) {
  Expression& e = s.make(ExpressionKind::kConstant, line);
  e.constant = std::move(value);
  return s.done(e);
}

const Expression* with_parts(ParserState& s, ExpressionKind kind, int line, std::string name,
                             std::vector<const Expression*> parts) {
  Expression& e = s.make(kind, line);
  e.name = std::move(name);
  e.parts = std::move(parts);
  return s.done(e);
}

bool ends_tuple(const ParserState& s) {
  return s.is(TokenKind::kBlockEnd) || s.is(TokenKind::kPrintEnd) || s.is_operator(")") ||
         s.is_name("in") || s.is_name("recursive");
}

template <typename Number>
Value number_of(ParserState& s, const Token& token) {
  Number value{};
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (error != std::errc() || stop != end)
    s.fail(fmt::format("the number {} is out of range", token.text), token.line);
  return value;
}

const Expression* parse_list(ParserState& s, int line) {
  std::vector<const Expression*> parts;
  while (!s.skip_operator("]")) {
    if (!parts.empty()) s.expect_operator(",");
    if (s.skip_operator("]")) break;
    parts.push_back(parse_expression(s));
  }
  return with_parts(s, ExpressionKind::kList, line, "", std::move(parts));
}

const Expression* parse_dict(ParserState& s, int line) {
  std::vector<const Expression*> parts;
  while (!s.skip_operator("}")) {
    if (!parts.empty()) s.expect_operator(",");
    if (s.skip_operator("}")) break;
    parts.push_back(parse_expression(s));
    s.expect_operator(":");
    parts.push_back(parse_expression(s));
  }
  return with_parts(s, ExpressionKind::kDict, line, "", std::move(parts));
}

const Expression* parse_name(ParserState& s, const Token& token) {
  const std::string& name = token.text;
  if (name == "true" || name == "True") return constant(s, true, token.line);
  if (name == "false" || name == "False") return constant(s, false, token.line);
  if (name == "none" || name == "None") return constant(s, None{}, token.line);
  return with_parts(s, ExpressionKind::kName, token.line, name, {});
}

const Expression* parse_primary(ParserState& s) {
  const Token token = s.take();
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name(s, token);
    case TokenKind::kString: {
      std::string text = token.text;
      while (s.is(TokenKind::kString)) text += s.take().text;
      return constant(s, Value::of_template(text), token.line);
    }
    case TokenKind::kInteger:
      return constant(s, number_of<std::int64_t>(s, token), token.line);
    case TokenKind::kFloat:
      return constant(s, number_of<double>(s, token), token.line);
    case TokenKind::kOperator:
      break;
    default:
      s.fail("an expression is missing", token.line);
  }
  if (token.text == "[") return parse_list(s, token.line);
  if (token.text == "{") return parse_dict(s, token.line);
  if (token.text != "(") s.fail(fmt::format("unexpected \"{}\"", token.text), token.line);
  if (s.skip_operator(")")) return with_parts(s, ExpressionKind::kTuple, token.line, "", {});
  const Expression* inside = parse_tuple_or_one(s, /*with_condition=*/true);
  s.expect_operator(")");
  return inside;
}

// The arguments after "(" into a call, filter or test.
void parse_arguments(ParserState& s, Expression& call) {
  bool first = true;
  while (!s.skip_operator(")")) {
    if (!std::exchange(first, false)) s.expect_operator(",");
    if (s.skip_operator(")")) break;
    if (s.is_operator("*") || s.is_operator("**"))
      s.unsupported("arguments with * are not supported");
    if (s.is(TokenKind::kName) && s.ahead().kind == TokenKind::kOperator && s.ahead().text == "=") {
      std::string name = s.take().text;
      s.take();
      call.named.emplace_back(std::move(name), parse_expression(s));
    } else {
      if (!call.named.empty()) s.fail("an argument without a name follows one with a name");
      call.parts.push_back(parse_expression(s));
    }
  }
}

const Expression* parse_call(ParserState& s, const Expression* callee) {
  const int line = s.now().line;
  s.expect_operator("(");
  if (callee->kind == ExpressionKind::kAttribute && !is_known_method(callee->name))
    s.unsupported(fmt::format("the method .{}() is not supported", callee->name), line);
  Expression& call = s.make(ExpressionKind::kCall, line);
  call.parts.push_back(callee);
  parse_arguments(s, call);
  return s.done(call);
}

const Expression* parse_subscript(ParserState& s, const Expression* of, int line) {
  const Expression* parts[3] = {nullptr, nullptr, nullptr};
  std::size_t n_colons = 0;
  while (!s.is_operator("]")) {
    if (s.skip_operator(":")) {
      if (++n_colons > 2) s.fail("a slice has at most two colons");
    } else if (s.is_operator(",")) {
      s.unsupported("several subscripts in one [] are not supported");
    } else {
      if (parts[n_colons] != nullptr) s.fail("a \"]\" is missing");
      parts[n_colons] = parse_expression(s);
    }
  }
  s.expect_operator("]");
  if (n_colons == 0) {
    if (parts[0] == nullptr) s.fail("a subscript is missing between [ and ]", line);
    return with_parts(s, ExpressionKind::kItem, line, "", {of, parts[0]});
  }
  return with_parts(s, ExpressionKind::kSlice, line, "", {of, parts[0], parts[1], parts[2]});
}

const Expression* parse_postfix(ParserState& s, const Expression* e) {
  while (true) {
    const int line = s.now().line;
    if (s.skip_operator(".")) {
      const Token token = s.take();
      if (token.kind == TokenKind::kInteger) {
        e = with_parts(s, ExpressionKind::kItem, line, "",
                       {e, constant(s, number_of<std::int64_t>(s, token), line)});
      } else if (token.kind == TokenKind::kName) {
        e = with_parts(s, ExpressionKind::kAttribute, line, token.text, {e});
      } else {
        s.fail("a name is missing after \".\"", line);
      }
    } else if (s.skip_operator("[")) {
      e = parse_subscript(s, e, line);
    } else if (s.is_operator("(")) {
      e = parse_call(s, e);
    } else {
      return e;
    }
  }
}

const Expression* parse_one_filter(ParserState& s, const Expression* of) {
  const int line = s.now().line;
  std::string name = s.expect_name("a filter's name");
  if (!is_known_filter(name))
    s.unsupported(fmt::format("the filter \"{}\" is not supported", name), line);
  Expression& filter = s.make(ExpressionKind::kFilter, line);
  filter.name = std::move(name);
  filter.parts.push_back(of);
  if (s.skip_operator("(")) parse_arguments(s, filter);
  return s.done(filter);
}

bool begins_an_argument(const ParserState& s) {
  switch (s.now().kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kName:
      return !s.is_name("else") && !s.is_name("or") && !s.is_name("and") && !s.is_name("if") &&
             !s.is_name("is") && !s.is_name("in") && !s.is_name("not");
    case TokenKind::kOperator:
      return s.is_operator("[") || s.is_operator("{");
    default:
      return false;
  }
}

const Expression* parse_test(ParserState& s, const Expression* of) {
  const int line = s.now().line;
  const bool negated = s.skip_name("not");
  std::string name = s.expect_name("a test's name");
  if (!is_known_test(name))
    s.unsupported(fmt::format("the test \"{}\" is not supported", name), line);
  Expression& test = s.make(ExpressionKind::kTest, line);
  test.name = std::move(name);
  test.parts.push_back(of);
  if (s.skip_operator("(")) {
    parse_arguments(s, test);
  } else if (begins_an_argument(s)) {
    test.parts.push_back(parse_postfix(s, parse_primary(s)));
  }
  const Expression* tested = s.done(test);
  return negated ? with_parts(s, ExpressionKind::kNot, line, "", {tested}) : tested;
}

const Expression* parse_filters_and_tests(ParserState& s, const Expression* e) {
  while (true) {
    if (s.skip_operator("|")) {
      e = parse_one_filter(s, e);
    } else if (s.skip_name("is")) {
      e = parse_test(s, e);
    } else if (s.is_operator("(")) {
      e = parse_call(s, e);
    } else {
      return e;
    }
  }
}

const Expression* parse_unary(ParserState& s, bool with_filters) {
  const ParserState::Level level(s);
  const int line = s.now().line;
  const Expression* e = nullptr;
  if (s.skip_operator("-")) {
    e = with_parts(s, ExpressionKind::kNegative, line, "", {parse_unary(s, false)});
  } else if (s.skip_operator("+")) {
    e = with_parts(s, ExpressionKind::kPositive, line, "", {parse_unary(s, false)});
  } else {
    e = parse_primary(s);
  }
  e = parse_postfix(s, e);
  return with_filters ? parse_filters_and_tests(s, e) : e;
}

// left op right op right ..., from the left.
template <std::size_t N, typename Next>
const Expression* parse_arithmetic(ParserState& s, const std::string_view (&operators)[N],
                                   const Next& next) {
  const Expression* left = next();
  while (true) {
    bool found = false;
    for (const std::string_view op : operators) {
      if (!s.is_operator(op)) continue;
      const int line = s.take().line;
      left = with_parts(s, ExpressionKind::kArithmetic, line, std::string(op), {left, next()});
      found = true;
      break;
    }
    if (!found) return left;
  }
}

const Expression* parse_power(ParserState& s) {
  static constexpr std::string_view kPower[] = {"**"};
  return parse_arithmetic(s, kPower, [&] { return parse_unary(s, true); });
}

const Expression* parse_product(ParserState& s) {
  static constexpr std::string_view kProduct[] = {"*", "/", "//", "%"};
  return parse_arithmetic(s, kProduct, [&] { return parse_power(s); });
}

const Expression* parse_join(ParserState& s) {
  const int line = s.now().line;
  std::vector<const Expression*> parts = {parse_product(s)};
  while (s.skip_operator("~")) parts.push_back(parse_product(s));
  return parts.size() == 1 ? parts[0]
                           : with_parts(s, ExpressionKind::kJoin, line, "", std::move(parts));
}

const Expression* parse_sum(ParserState& s) {
  static constexpr std::string_view kSum[] = {"+", "-"};
  return parse_arithmetic(s, kSum, [&] { return parse_join(s); });
}

// The comparison that comes, taken; "" for none.
std::string take_comparison(ParserState& s) {
  for (const std::string_view op : {"==", "!=", "<", "<=", ">", ">="}) {
    if (s.skip_operator(op)) return std::string(op);
  }
  if (s.skip_name("in")) return "in";
  if (s.is_name("not") && s.ahead().kind == TokenKind::kName && s.ahead().text == "in") {
    s.take();
    s.take();
    return "not in";
  }
  return "";
}

const Expression* parse_compare(ParserState& s) {
  const int line = s.now().line;
  const Expression* first = parse_sum(s);
  std::string op = take_comparison(s);
  if (op.empty()) return first;
  Expression& e = s.make(ExpressionKind::kCompare, line);
  e.parts.push_back(first);
  for (; !op.empty(); op = take_comparison(s)) {
    e.names.push_back(op);
    e.parts.push_back(parse_sum(s));
  }
  return s.done(e);
}

const Expression* parse_not(ParserState& s) {
  const ParserState::Level level(s);
  const int line = s.now().line;
  if (s.skip_name("not")) return with_parts(s, ExpressionKind::kNot, line, "", {parse_not(s)});
  return parse_compare(s);
}

const Expression* parse_and(ParserState& s) {
  const Expression* left = parse_not(s);
  while (s.is_name("and")) {
    const int line = s.take().line;
    left = with_parts(s, ExpressionKind::kAnd, line, "", {left, parse_not(s)});
  }
  return left;
}

const Expression* parse_or(ParserState& s) {
  const Expression* left = parse_and(s);
  while (s.is_name("or")) {
    const int line = s.take().line;
    left = with_parts(s, ExpressionKind::kOr, line, "", {left, parse_and(s)});
  }
  return left;
}

}  // namespace

const Expression* parse_expression(ParserState& s) {
  const ParserState::Level level(s);
  const Expression* e = parse_or(s);
  while (s.is_name("if")) {
    const int line = s.take().line;
    const Expression* condition = parse_or(s);
    const Expression* otherwise = s.skip_name("else") ? parse_expression(s) : nullptr;
    e = with_parts(s, ExpressionKind::kCondition, line, "", {e, condition, otherwise});
  }
  return e;
}

const Expression* parse_without_condition(ParserState& s) {
  const ParserState::Level level(s);
  return parse_or(s);
}

const Expression* parse_tuple_or_one(ParserState& s, bool with_condition) {
  const int line = s.now().line;
  std::vector<const Expression*> parts;
  bool is_tuple = false;
  while (parts.empty() || s.is_operator(",")) {
    if (!parts.empty()) {
      s.take();
      is_tuple = true;
      if (ends_tuple(s)) break;
    }
    parts.push_back(with_condition ? parse_expression(s) : parse_without_condition(s));
  }
  return is_tuple ? with_parts(s, ExpressionKind::kTuple, line, "", std::move(parts)) : parts[0];
}

const Expression* parse_filters(ParserState& s, const Expression* inner) {
  do {
    inner = parse_one_filter(s, inner);
  } while (s.skip_operator("|"));
  return inner;
}

}  // namespace longhaul::chat
