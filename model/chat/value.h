// The values of a template: those of Python, as far as templates see them. Immutable and shared,
// but for namespaces. Cheap to copy.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "model/chat/text.h"

namespace longhaul::chat {

class Value;
struct Arguments;

// What a name stands for that nobody set; `what` says so: "'x' is undefined".
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;            // of lists and dicts inside each other; Value counts it
  std::int64_t weight = 1;  // see weight_of; Value counts it
};
// In the order of insertion. Small: found by looking at each.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  std::int64_t weight = 1;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> names;
};
// The `loop` of a for block.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  std::vector<Value> last_changed;  // what loop.changed() was given last; empty: nothing yet
};
struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, std::int64_t, double,
                               std::shared_ptr<const Text>, std::shared_ptr<const List>,
                               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                               std::shared_ptr<Loop>, std::shared_ptr<const Function>>;
  Value() = default;                                                           // undefined
  Value(None none) : value_(none) {}                                           // NOLINT
  Value(bool value) : value_(value) {}                                         // NOLINT
  Value(std::int64_t value) : value_(value) {}                                 // NOLINT
  Value(double value) : value_(value) {}                                       // NOLINT
  Value(Text text) : value_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
  // Throw kInvalidArgument for data that is nested too deeply or weighs too much, and for
  // namespaces, loops and functions in it: so nothing refers to itself, destroying or printing a
  // value needs little stack, and what looks at all of a value ends.
  Value(List list);                                                      // NOLINT
  Value(Dict dict);                                                      // NOLINT
  Value(std::shared_ptr<Namespace> space) : value_(std::move(space)) {}  // NOLINT
  Value(std::shared_ptr<Loop> loop) : value_(std::move(loop)) {}         // NOLINT
  Value(Function function)                                               // NOLINT
      : value_(std::make_shared<const Function>(std::move(function))) {}
  static Value undefined(std::string what);
  static Value of_template(std::string_view text);  // a string that no user wrote
  static Value from_json(const Json& json);         // its strings are data

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }  // no bool
  bool is_float() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_bool() || is_integer() || is_float(); }
  // nullptr when it is another kind; valid while this value is.
  const Text* text() const;
  const List* list() const;  // lists and tuples
  const Dict* dict() const;
  Namespace* space() const;
  Loop* loop() const;
  const Function* function() const;
  const std::shared_ptr<const List>& shared_list() const;
  // Of a bool, an integer; nullopt for others.
  std::optional<std::int64_t> integer() const;
  // Of a bool, an integer, a float.
  std::optional<double> number() const;
  const Undefined& undefined_reason() const { return std::get<Undefined>(value_); }

  bool truth() const;
  // Python's names: "str", "int", "dict", ...
  std::string_view type_name() const;
  const Variant& variant() const { return value_; }

 private:
  Variant value_;
};

// What a function is called with.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value* find(std::size_t position, std::string_view name) const;
};

// Throws as Value(List) does for what no list, dict or namespace may hold. Returns its depth.
int depth_inside(const Value& value);

// What printing or comparing a value takes: 1 for itself and for each 256 bytes of text in it, and
// the weights of what it holds, as often as it holds them.
std::int64_t weight_of(const Value& value);

// Python's ==. Never throws.
bool equal(const Value& a, const Value& b);
// Python's <. Throws kInvalidArgument for kinds that have no order.
bool less(const Value& a, const Value& b);

}  // namespace longhaul::chat
