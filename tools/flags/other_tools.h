// Flags of llama.cpp and vLLM that users type from habit, and that a parser of one-letter short
// flags would misread: "-ngl 99" as "-n gl".
#pragma once
#include <string>
#include <vector>

namespace longhaul {

// Flags that Longhaul has under other names get these. Throws kInvalidArgument for one that it does
// without, saying what to give instead. Words behind -- and texts of prompts stay what they are.
void spell_as_here(std::vector<std::string>& arguments);

}  // namespace longhaul
