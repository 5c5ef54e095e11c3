// Values as text: what Python's str(), repr() and json.dumps() write. Pure.
#pragma once
#include <optional>
#include <string>

#include "model/chat/value.h"

namespace longhaul::chat {

// str(value). Throws kUnsupported for what no template prints on purpose: functions, loops,
// namespaces.
Text python_str(const Value& value);
Text python_repr(const Value& value);
std::string python_float(double value);  // repr(float)

struct JsonStyle {
  bool ascii_only = false;
  std::optional<std::string> indent;  // of one level; nullopt: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(value). Throws kInvalidArgument for what JSON cannot hold.
Text json_dumps(const Value& value, const JsonStyle& style);

}  // namespace longhaul::chat
