// Flags of llama.cpp and vLLM that Longhaul does without: users type them from habit.
#pragma once
#include <string>
#include <string_view>

namespace longhaul {

// What to give instead of `word`, such as "-ngl"; "" when it is no such flag.
std::string advice_on_foreign_flag(std::string_view word);

}  // namespace longhaul
