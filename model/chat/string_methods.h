// The methods of Python's str. Pure.
#pragma once
#include <optional>
#include <string_view>

#include "model/chat/value.h"

namespace longhaul::chat {

bool is_string_method(std::string_view name);

// Throws kInvalidArgument for arguments that Python would not take.
Value call_string_method(const Text& self, std::string_view name, const Arguments& given);

// Also what filters of the same names do.
Text replaced(const Text& text, std::string_view from, const Text& to,
              std::optional<std::int64_t> most);
Text padded(const Text& text, std::int64_t width, double share_left, std::string_view fill = " ");
Text joined_by(const Text& separator, const List& list);

}  // namespace longhaul::chat
