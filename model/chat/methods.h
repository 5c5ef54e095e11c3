// Methods of strings, lists, dicts, and the variables of loops.
#pragma once
#include <optional>
#include <string_view>

#include "model/chat/value.h"

namespace longhaul::chat {

class Evaluator;

// value.name as a function, when Python has such a method; nullopt otherwise. The function may be
// called while the evaluator lives. Those that would change the value throw when they are called.
std::optional<Value> method_of(const Value& value, std::string_view name, Evaluator& evaluator);

// loop.index, loop.first, loop.cycle, ...; nullopt for names that a loop does not have.
std::optional<Value> loop_variable(const Loop& loop, std::string_view name);

}  // namespace longhaul::chat
