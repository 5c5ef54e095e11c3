// The half of the evaluator that runs text, tags and blocks.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/chat/evaluator.h"
#include "model/chat/evaluator_level.h"
#include "model/chat/fail.h"
#include "model/chat/operators.h"
#include "model/chat/python_text.h"

namespace longhaul::chat {
namespace {}  // namespace

Evaluator::Level::Level(Evaluator& evaluator, int line) : evaluator_(evaluator) {
  evaluator.line_ = line;
  if (evaluator.depth_ >= evaluator.limits_.max_depth)
    fail("calls, blocks and expressions are nested too deeply");
  evaluator.count_steps(1);
  ++evaluator.depth_;
}

Evaluator::Evaluator(const Syntax& syntax, std::string_view source, const std::tm& now,
                     const RenderLimits& limits)
    : syntax_(syntax), source_(source), now_(now), limits_(limits) {
  push_scope();
  define_functions();
  push_scope();
}

// Macros and their scopes hold each other.
Evaluator::~Evaluator() {
  for (const auto& scope : macro_scopes_) scope->names.clear();
}

void Evaluator::push_scope() {
  auto inner = std::make_shared<Scope>();
  inner->outer = scope_;
  scope_ = std::move(inner);
}

void Evaluator::pop_scope() { scope_ = scope_->outer; }

void Evaluator::count_steps(std::size_t n) {
  n_steps_ += static_cast<std::int64_t>(n);
  if (n_steps_ > limits_.max_steps)
    fail(fmt::format("the template does not end within {} steps", limits_.max_steps));
}

void Evaluator::check_size(std::size_t n_bytes) {
  if (n_bytes > limits_.max_text_bytes)
    fail(fmt::format("a text grows beyond {} bytes", limits_.max_text_bytes));
  count_steps(n_bytes / 256);
}

Text Evaluator::render(const std::vector<std::pair<std::string, Value>>& variables) {
  for (const auto& [name, value] : variables) scope_->names.insert_or_assign(name, value);
  try {
    run(syntax_.top);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}:{}: {}", source_, line_, error.what()));
  }
  return std::move(output_);
}

Evaluator::Flow Evaluator::run(const Block& block) {
  for (const Statement* statement : block) {
    const Flow flow = run(*statement);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  const Level level(*this, statement.line);
  switch (statement.kind) {
    case StatementKind::kText:
      check_size(output_.size() + statement.text.size());
      output_.append(statement.text, Origin::kTemplate);
      break;
    case StatementKind::kPrint:
      print(evaluate(*statement.expression));
      break;
    case StatementKind::kIf:
      return run_if(statement);
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kSet:
      assign(statement.target, evaluate(*statement.expression));
      break;
    case StatementKind::kSetBlock:
      assign(statement.target, filtered(statement.filters, text_of(statement.body)));
      break;
    case StatementKind::kMacro:
      macro_scopes_.push_back(scope_);
      scope_->names.insert_or_assign(statement.text, macro(statement, statement.text));
      break;
    case StatementKind::kCallBlock:
      run_call_block(statement);
      break;
    case StatementKind::kFilterBlock:
      print(filtered(statement.filters, text_of(statement.body)));
      break;
    case StatementKind::kWith:
      return run_with(statement);
    case StatementKind::kScope:
      print(text_of(statement.body));
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

void Evaluator::print(const Value& value) {
  const Text text = python_str(value);
  if (output_.size() + text.size() > limits_.max_text_bytes)
    check_size(output_.size() + text.size());
  count_steps(text.size() / 256);
  output_.append(text);
}

Evaluator::Flow Evaluator::run_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || evaluate(*branch.condition).truth()) return run(branch.body);
  }
  return Flow::kOn;
}

// What the loop goes over, after its "if".
std::shared_ptr<const List> Evaluator::items_for(const Statement& statement) {
  auto items = items_of(evaluate(*statement.expression));
  count_steps(items->items.size());
  if (statement.condition == nullptr) return items;
  auto kept = std::make_shared<List>();
  for (const Value& item : items->items) {
    push_scope();
    assign(statement.target, item);
    if (evaluate(*statement.condition).truth()) kept->items.push_back(item);
    pop_scope();
  }
  return kept;
}

Evaluator::Flow Evaluator::run_for(const Statement& statement) {
  const auto loop = std::make_shared<Loop>();
  loop->items = items_for(statement);
  if (loop->items->items.empty()) {
    push_scope();
    const Flow flow = run(statement.otherwise);
    pop_scope();
    return flow;
  }
  run_items(statement, loop);
  return Flow::kOn;
}

Evaluator::Flow Evaluator::run_items(const Statement& statement,
                                     const std::shared_ptr<Loop>& loop) {
  for (; loop->index < loop->items->items.size(); ++loop->index) {
    push_scope();
    scope_->names.insert_or_assign("loop", Value(loop));
    assign(statement.target, loop->items->items[loop->index]);
    const Flow flow = run(statement.body);
    pop_scope();
    count_steps(1);
    if (flow == Flow::kBreak) break;
  }
  return Flow::kOn;
}

void Evaluator::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) {
    const Value space = look_up(target.names[0]);
    if (space.space() == nullptr)
      fail(fmt::format("\"{}\" is no namespace: its attributes cannot be set", target.names[0]));
    if (target.attribute.starts_with('_')) fail("a namespace's names may not begin with \"_\"");
    depth_inside(value);
    for (auto& [name, known] : space.space()->names) {
      if (name != target.attribute) continue;
      known = std::move(value);
      return;
    }
    space.space()->names.emplace_back(target.attribute, std::move(value));
    return;
  }
  if (!target.is_tuple) {
    scope_->names.insert_or_assign(target.names[0], std::move(value));
    return;
  }
  const auto items = items_of(value);
  if (items->items.size() != target.names.size())
    fail(fmt::format("{} values for {} names", items->items.size(), target.names.size()));
  for (std::size_t i = 0; i < target.names.size(); ++i)
    scope_->names.insert_or_assign(target.names[i], items->items[i]);
}

Text Evaluator::text_of(const Block& block) {
  Text before = std::exchange(output_, {});
  push_scope();
  run(block);
  pop_scope();
  return std::exchange(output_, std::move(before));
}

Value Evaluator::filtered(const Expression* filters, Text text) {
  if (filters == nullptr) return text;
  push_scope();
  scope_->names.insert_or_assign(kBlockText, Value(std::move(text)));
  Value result = evaluate(*filters);
  pop_scope();
  return result;
}

Evaluator::Flow Evaluator::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& [target, value] : statement.assignments) values.push_back(evaluate(*value));
  push_scope();
  for (std::size_t i = 0; i < values.size(); ++i)
    assign(statement.assignments[i].first, std::move(values[i]));
  const Flow flow = run(statement.body);
  pop_scope();
  return flow;
}

Function Evaluator::macro(const Statement& statement, std::string name) {
  const std::shared_ptr<Scope> closure = scope_;
  return {name, [this, &statement, name, closure](const Arguments& given) {
            return call_macro(statement, name, closure, given);
          }};
}

Value Evaluator::call_macro(const Statement& statement, const std::string& name,
                            const std::shared_ptr<Scope>& closure, const Arguments& given) {
  const std::shared_ptr<Scope> caller = std::exchange(scope_, closure);
  push_scope();
  if (given.positional.size() > statement.parameters.size()) {
    fail(fmt::format("{}() takes {} arguments, not {}", name, statement.parameters.size(),
                     given.positional.size()));
  }
  for (const auto& [given_name, value] : given.named) {
    const bool known = given_name == "caller" ||
                       std::any_of(statement.parameters.begin(), statement.parameters.end(),
                                   [&known_name = given_name](const Parameter& p) {
                                     return p.name == known_name;
                                   });
    if (!known) fail(fmt::format("{}() has no parameter \"{}\"", name, given_name));
    scope_->names.insert_or_assign(given_name, value);
  }
  for (std::size_t i = 0; i < statement.parameters.size(); ++i) {
    const Parameter& parameter = statement.parameters[i];
    if (i < given.positional.size()) {
      scope_->names.insert_or_assign(parameter.name, given.positional[i]);
    } else if (!scope_->names.contains(parameter.name)) {
      Value initial =
          parameter.initial != nullptr
              ? evaluate(*parameter.initial)
              : Value::undefined(fmt::format("parameter \"{}\" was not given", parameter.name));
      scope_->names.insert_or_assign(parameter.name, std::move(initial));
    }
  }
  Text text = text_of(statement.body);
  scope_ = caller;
  return text;
}

// {% call name(...) %}: the body is the macro "caller" of what is called.
void Evaluator::run_call_block(const Statement& statement) {
  macro_scopes_.push_back(scope_);
  const Expression& call = *statement.expression;
  const Value callee = evaluate(*call.parts[0]);
  if (callee.function() == nullptr) fail("{% call %} needs a macro");
  Arguments given = arguments(call);
  given.named.emplace_back("caller", macro(statement, "caller"));
  print(callee.function()->call(given));
}

}  // namespace longhaul::chat
