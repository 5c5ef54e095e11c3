// The half of the evaluator that gives expressions their values.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/chat/evaluator.h"
#include "model/chat/evaluator_level.h"
#include "model/chat/methods.h"
#include "model/chat/operators.h"
#include "model/chat/python_text.h"

namespace longhaul::chat {
namespace {

std::string undefined_reason(const Value& value) {
  const auto& what = value.undefined_reason().what;
  return what ? *what : "a value that is undefined is used";
}

std::optional<std::int64_t> slice_place(const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (!value.integer())
    throw Error(ErrorCode::kInvalidArgument, "a slice's places must be integers");
  return value.integer();
}

bool compare_two(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) throw Error(ErrorCode::kInvalidArgument, undefined_reason(*value));
  }
  if (op == "<") return less(a, b);
  if (op == ">") return less(b, a);
  if (op == "<=") return less(a, b) || equal(a, b);
  return less(b, a) || equal(a, b);
}

}  // namespace

Value Evaluator::evaluate(const Expression& e) {
  const Level level(*this, e.line);
  return evaluate_parts(e);
}

Value Evaluator::evaluate_parts(const Expression& e) {
  const auto part = [&](std::size_t i) { return evaluate(*e.parts[i]); };
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.constant;
    case ExpressionKind::kName:
      return look_up(e.name);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      List list{.items = {}, .is_tuple = e.kind == ExpressionKind::kTuple};
      for (const Expression* item : e.parts) list.items.push_back(evaluate(*item));
      return list;
    }
    case ExpressionKind::kDict:
      return dict(e);
    case ExpressionKind::kAttribute:
      return attribute(part(0), e.name);
    case ExpressionKind::kItem: {
      const Value of = part(0);
      return item(of, part(1));
    }
    case ExpressionKind::kSlice:
      return slice(e);
    case ExpressionKind::kCall:
      return call(e, part(0));
    case ExpressionKind::kFilter: {
      const Value value = part(0);
      return apply_filter(e.name, value, arguments(e));
    }
    case ExpressionKind::kTest: {
      const Value value = part(0);
      return apply_test(e.name, value, arguments(e));
    }
    case ExpressionKind::kNot:
      return !part(0).truth();
    case ExpressionKind::kNegative:
      return negative(part(0));
    case ExpressionKind::kPositive:
      return arithmetic("+", std::int64_t{0}, part(0), limits_.max_text_bytes);
    case ExpressionKind::kAnd: {
      Value left = part(0);
      return left.truth() ? part(1) : left;
    }
    case ExpressionKind::kOr: {
      Value left = part(0);
      return left.truth() ? left : part(1);
    }
    case ExpressionKind::kArithmetic: {
      const Value left = part(0);
      const Value right = part(1);
      Value result = arithmetic(e.name, left, right, limits_.max_text_bytes);
      if (const Text* text = result.text()) count_steps(text->size() / 256);
      if (const List* list = result.list()) count_steps(list->items.size());
      return result;
    }
    case ExpressionKind::kJoin:
      return join(e);
    case ExpressionKind::kCompare:
      return compare(e);
    case ExpressionKind::kCondition:
      if (part(1).truth()) return part(0);
      return e.parts[2] == nullptr ? Value::undefined("the condition has no \"else\"") : part(2);
  }
  throw Error(ErrorCode::kInternal, "an unknown kind of expression");
}

Value Evaluator::look_up(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    const auto at = scope->names.find(name);
    if (at != scope->names.end()) return at->second;
  }
  return Value::undefined(fmt::format("\"{}\" is undefined", name));
}

Value Evaluator::dict(const Expression& e) {
  Dict made;
  for (std::size_t i = 0; i < e.parts.size(); i += 2) {
    Value key = evaluate(*e.parts[i]);
    made.set(std::move(key), evaluate(*e.parts[i + 1]));
  }
  return made;
}

Value Evaluator::slice(const Expression& e) {
  const Value of = evaluate(*e.parts[0]);
  std::optional<std::int64_t> places[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (e.parts[i + 1] != nullptr) places[i] = slice_place(evaluate(*e.parts[i + 1]));
  }
  if (of.is_undefined()) throw Error(ErrorCode::kInvalidArgument, undefined_reason(of));
  if (const Text* text = of.text()) count_steps(text->size() / 256);
  if (const List* list = of.list()) count_steps(list->items.size() / 16);
  return slice_of(of, places[0], places[1], places[2]);
}

Value Evaluator::join(const Expression& e) {
  Text all;
  for (const Expression* part : e.parts) {
    const Text text = python_str(evaluate(*part));
    check_size(all.size() + text.size());
    all.append(text);
  }
  return all;
}

Value Evaluator::compare(const Expression& e) {
  Value left = evaluate(*e.parts[0]);
  for (std::size_t i = 0; i < e.names.size(); ++i) {
    Value right = evaluate(*e.parts[i + 1]);
    count_steps(static_cast<std::size_t>(weight_of(right) / 4));
    if (!compare_two(e.names[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Arguments Evaluator::arguments(const Expression& e) {
  Arguments given;
  for (std::size_t i = 1; i < e.parts.size(); ++i)
    given.positional.push_back(evaluate(*e.parts[i]));
  for (const auto& [name, value] : e.named) given.named.emplace_back(name, evaluate(*value));
  return given;
}

Value Evaluator::call(const Expression& e, const Value& callee) {
  if (callee.is_undefined()) throw Error(ErrorCode::kInvalidArgument, undefined_reason(callee));
  if (callee.function() == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a {} cannot be called", callee.type_name()));
  }
  const Arguments given = arguments(e);
  line_ = e.line;
  return callee.function()->call(given);
}

// value.name: a method or a loop's variable, then a dict's item.
Value Evaluator::attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw Error(ErrorCode::kInvalidArgument, undefined_reason(value));
  if (const Namespace* space = value.space()) {
    for (const auto& [known, item] : space->names)
      if (known == name) return item;
  }
  if (auto method = method_of(value, name, *this)) return std::move(*method);
  if (const Loop* loop = value.loop()) {
    if (auto variable = loop_variable(*loop, name)) return std::move(*variable);
  }
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->find(Value::of_template(name))) return *found;
  }
  return Value::undefined(fmt::format("\"{} object\" has no \"{}\"", value.type_name(), name));
}

// value[key]: an item, then what value.key means.
Value Evaluator::item(const Value& value, const Value& key) {
  if (value.is_undefined()) throw Error(ErrorCode::kInvalidArgument, undefined_reason(value));
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->find(key)) return *found;
  }
  if (const auto index = key.integer();
      index && (value.list() != nullptr || value.text() != nullptr)) {
    const std::int64_t n = length_of(value);
    const std::int64_t at = *index < 0 ? *index + n : *index;
    if (at < 0 || at >= n)
      return Value::undefined(fmt::format("a {} has no item {}", value.type_name(), *index));
    if (const List* list = value.list()) return list->items[static_cast<std::size_t>(at)];
    count_steps(value.text()->size() / 256);
    return slice_of(value, at, at + 1, std::nullopt);
  }
  if (const Text* name = key.text(); name != nullptr && value.list() == nullptr) {
    return attribute(value, name->bytes());
  }
  return Value::undefined(fmt::format("a {} has no such item", value.type_name()));
}

}  // namespace longhaul::chat
