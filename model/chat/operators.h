// What operators mean: Python's arithmetic, joining, membership, subscripts. Pure.
#pragma once
#include <optional>
#include <string_view>

#include "model/chat/value.h"

namespace longhaul::chat {

// + - * / // % ** . Texts and lists are added, texts and lists multiplied by integers, and "%"
// fills a text's place holders. Throws kInvalidArgument for kinds that do not go together, division
// by zero, and results that would have more than `max_text_bytes`.
Value arithmetic(std::string_view op, const Value& a, const Value& b, std::size_t max_text_bytes);
Value negative(const Value& value);

// item in container.
bool contains(const Value& container, const Value& item);

// The items that a loop over the value sees: of a list, the keys of a dict, a text's characters;
// nothing of an undefined one. Throws kInvalidArgument for others.
std::shared_ptr<const List> items_of(const Value& value);
// len(); throws kInvalidArgument where there is none.
std::int64_t length_of(const Value& value);

// value[begin:end:step] of a list or text; nullopt: left out.
Value slice_of(const Value& value, std::optional<std::int64_t> begin,
               std::optional<std::int64_t> end, std::optional<std::int64_t> step);

// "%s and %d" % arguments, with flags, width and precision.
Text percent_format(const Text& format, const Value& arguments);

}  // namespace longhaul::chat
