// Runs a template's tree over variables. One evaluator renders once, on one thread. Pure but for
// the time, which is given.
#pragma once
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/syntax.h"

namespace longhaul::chat {

// What a template may use up; kInvalidArgument beyond it.
struct RenderLimits {
  std::int64_t max_steps = 20'000'000;  // of expressions and statements, and 256 bytes of text
  std::size_t max_text_bytes = std::size_t{1} << 30;  // of any one text, so also of the output
  int max_depth = 600;  // of calls, blocks and expressions inside each other
};

struct Scope {
  std::shared_ptr<Scope> outer;
  std::map<std::string, Value, std::less<>> names;
};

class Evaluator {
 public:
  // `source` is named in errors. `now`: local time, for strftime_now. The syntax must outlive it.
  Evaluator(const Syntax& syntax, std::string_view source, const std::tm& now,
            const RenderLimits& limits);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Throws kInvalidArgument: "<source>:<line>: <reason>", also for what raise_exception says.
  Text render(const std::vector<std::pair<std::string, Value>>& variables);

  // For filters, tests and functions.
  void count_steps(std::size_t n);
  void check_size(std::size_t n_bytes);  // of a text that is about to be made
  Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  class Level;

  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  Flow run_items(const Statement& statement, const std::shared_ptr<Loop>& loop);
  Flow run_with(const Statement& statement);
  void run_call_block(const Statement& statement);
  Text text_of(const Block& block);  // in a scope of its own
  Value filtered(const Expression* filters, Text text);
  void assign(const Target& target, Value value);
  Function macro(const Statement& statement, std::string name);
  Value call_macro(const Statement& statement, const std::string& name,
                   const std::shared_ptr<Scope>& closure, const Arguments& arguments);
  void print(const Value& value);
  std::shared_ptr<const List> items_for(const Statement& statement);

  Value evaluate(const Expression& e);
  Value evaluate_parts(const Expression& e);
  Value name(const Expression& e);
  Value slice(const Expression& e);
  Value dict(const Expression& e);
  Value join(const Expression& e);
  Value compare(const Expression& e);
  Value call(const Expression& e, const Value& callee);
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Arguments arguments(const Expression& e);
  Value look_up(const std::string& name) const;
  void define_functions();
  void push_scope();
  void pop_scope();

  const Syntax& syntax_;
  std::string source_;
  std::tm now_;
  RenderLimits limits_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> macro_scopes_;  // that macros hold and that hold macros
  Text output_;
  std::int64_t n_steps_ = 0;
  int depth_ = 0;
  int line_ = 0;  // of what runs
};

}  // namespace longhaul::chat
