// The functions that every template may call.
#include <fmt/format.h>

#include <array>

#include "model/chat/evaluator.h"
#include "model/chat/fail.h"
#include "model/chat/python_text.h"

namespace longhaul::chat {
namespace {

constexpr std::int64_t kMaxRange = 100'000;

std::int64_t integer_at(const Arguments& given, std::size_t i) {
  if (!given.positional[i].integer()) fail("range() needs integers");
  return *given.positional[i].integer();
}

Value range(const Arguments& given) {
  const std::size_t n = given.positional.size();
  if (n < 1 || n > 3) fail("range() takes one to three integers");
  const std::int64_t begin = n == 1 ? 0 : integer_at(given, 0);
  const std::int64_t end = integer_at(given, n == 1 ? 0 : 1);
  const std::int64_t step = n == 3 ? integer_at(given, 2) : 1;
  if (step == 0) fail("range(): the step is zero");
  List list;
  __int128 at = begin;
  for (; step > 0 ? at < end : at > end; at += step) {
    if (static_cast<std::int64_t>(list.items.size()) == kMaxRange)
      fail(fmt::format("range() has at most {} items", kMaxRange));
    list.items.emplace_back(static_cast<std::int64_t>(at));
  }
  return list;
}

Dict dict_of(const Arguments& given) {
  Dict dict;
  for (const Value& value : given.positional) {
    if (value.dict() == nullptr) fail("dict() and namespace() take dicts and names with values");
    for (const auto& [key, item] : value.dict()->entries) dict.set(key, item);
  }
  for (const auto& [name, value] : given.named) dict.set(Value::of_template(name), value);
  return dict;
}

Value make_namespace(const Arguments& given) {
  auto space = std::make_shared<Namespace>();
  for (auto& [key, value] : dict_of(given).entries) {
    if (key.text() == nullptr || key.text()->bytes().starts_with('_'))
      fail("a namespace's names are texts that do not begin with \"_\"");
    depth_inside(value);
    space->names.emplace_back(key.text()->bytes(), std::move(value));
  }
  return space;
}

Value joiner(const Arguments& given) {
  const Value* separator = given.find(0, "sep");
  const Value text = separator != nullptr ? *separator : Value::of_template(", ");
  return Function{"joiner",
                  [text, used = std::make_shared<bool>(false)](const Arguments&) -> Value {
                    if (std::exchange(*used, true)) return text;
                    return Text();
                  }};
}

Value raise_exception(const Arguments& given) {
  const Value* message = given.find(0, "message");
  fail(fmt::format("the template refuses this conversation: {}",
                   message != nullptr ? python_str(*message).bytes() : ""));
}

Value strftime(const Arguments& given, const std::tm& now) {
  const Value* format = given.find(0, "format");
  if (format == nullptr || format->text() == nullptr) fail("strftime_now() needs a format");
  const std::string& text = format->text()->bytes();
  if (text.empty()) return Text();
  std::array<char, 1024> buffer{};
  const std::size_t n = std::strftime(buffer.data(), buffer.size(), text.c_str(), &now);
  if (n == 0) fail("strftime_now(): the format gives no text, or one that is too long");
  return Text(std::string(buffer.data(), n), Origin::kTemplate);
}

}  // namespace

void Evaluator::define_functions() {
  const auto define = [&](const char* name, std::function<Value(const Arguments&)> call) {
    scope_->names.insert_or_assign(name, Value(Function{name, std::move(call)}));
  };
  define("range", range);
  define("dict", [](const Arguments& given) { return Value(dict_of(given)); });
  define("namespace", make_namespace);
  define("joiner", joiner);
  define("raise_exception", raise_exception);
  define("strftime_now", [this](const Arguments& given) { return strftime(given, now_); });
}

}  // namespace longhaul::chat
