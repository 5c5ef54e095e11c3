// What a template may name without defining it. Anything else is refused when it is read, with its
// line, and not when it is used.
#pragma once
#include <string_view>

namespace longhaul::chat {

bool is_known_filter(std::string_view name);
bool is_known_test(std::string_view name);
bool is_known_method(std::string_view name);    // of a string, list, dict or loop
bool is_known_function(std::string_view name);  // range, namespace, raise_exception, ...

}  // namespace longhaul::chat
