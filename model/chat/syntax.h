// A template as a tree. All parts lie in one Syntax, which owns them; pointers stay valid while it
// lives.
#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "model/chat/value.h"

namespace longhaul::chat {

struct Expression;

enum class ExpressionKind {
  kConstant,
  kName,
  kList,       // parts
  kTuple,      // parts
  kDict,       // parts: key, value, key, value, ...
  kAttribute,  // parts[0].name
  kItem,       // parts[0][parts[1]]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]; null: left out
  kCall,       // parts[0](parts[1], ..., named)
  kFilter,     // parts[0] | name(parts[1], ..., named)
  kTest,       // parts[0] is name(parts[1], ...)
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kArithmetic,  // parts[0] name parts[1]; name is + - * / // % **
  kJoin,        // parts[0] ~ parts[1] ~ ...
  kCompare,     // parts[0] names[0] parts[1] names[1] parts[2] ...
  kCondition,   // parts[0] if parts[1] else parts[2]; null: undefined
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  int depth = 1;  // of the tree below
  std::string name;
  Value constant;
  std::vector<const Expression*> parts;
  std::vector<std::pair<std::string, const Expression*>> named;
  std::vector<std::string> names;  // kCompare
};

// What a value is put into: names, or one attribute of a namespace.
struct Target {
  std::vector<std::string> names;  // several: a tuple is taken apart
  bool is_tuple = false;
  std::string attribute;  // not empty: names[0].attribute
};

struct Statement;
using Block = std::vector<const Statement*>;

struct Parameter {
  std::string name;
  const Expression* initial = nullptr;  // null: undefined when it is not given
};

enum class StatementKind {
  kText,
  kPrint,
  kIf,           // branches; the last one without a condition is "else"
  kFor,          // target, expression, condition (or null), body, otherwise
  kSet,          // target, expression
  kSetBlock,     // target, filters (or null), body
  kMacro,        // name, parameters, body
  kCallBlock,    // expression (a call), parameters, body
  kFilterBlock,  // filters, body
  kWith,         // assignments, body
  kScope,        // body in a scope of its own: {% generation %}
  kBreak,
  kContinue,
};

struct Branch {
  const Expression* condition = nullptr;
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;  // kText; kMacro: its name
  const Expression* expression = nullptr;
  const Expression* condition = nullptr;
  // Filters around a block: an expression whose innermost part is the name kBlockText.
  const Expression* filters = nullptr;
  Target target;
  std::vector<Parameter> parameters;
  std::vector<std::pair<Target, const Expression*>> assignments;
  Block body;
  Block otherwise;
  std::vector<Branch> branches;
};

inline constexpr const char* kBlockText = " block";

struct Syntax {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  Block top;
};

}  // namespace longhaul::chat
