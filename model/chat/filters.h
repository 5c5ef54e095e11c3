// The filters of Jinja, and Hugging Face's tojson.
#pragma once
#include <span>
#include <string_view>

#include "model/chat/value.h"

namespace longhaul::chat {

class Evaluator;

// One use of a filter: what stands before the bar, and the arguments.
struct FilterCall {
  const Value& value;
  const Arguments& given;
  Evaluator& evaluator;

  // The argument, or `otherwise`.
  Value argument(std::size_t position, std::string_view name, Value otherwise) const;
  std::int64_t integer(std::size_t position, std::string_view name, std::int64_t otherwise) const;
  bool flag(std::size_t position, std::string_view name, bool otherwise) const;
  Text text() const;  // the value as str() writes it
};

using Filter = Value (*)(const FilterCall&);
struct NamedFilter {
  std::string_view name;
  Filter filter;
};
// These are null when there is none of that name.
Filter find_filter(std::span<const NamedFilter> filters, std::string_view name);
Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);

// value.a.b for "a.b"; numbers are places in lists.
Value value_at_path(const Value& value, const Value& path);

}  // namespace longhaul::chat
