// How far apart two words are: for messages that say what may have been meant.
#pragma once
#include <string_view>

namespace longhaul {

// Insertions, deletions and changes of one letter that make `b` of `a`.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace longhaul
