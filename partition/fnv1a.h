// Short names for values: FNV-1a with 64 bits, as 16 hexadecimal digits. Against mix-ups, not
// against forgery.
#pragma once
#include <string>
#include <string_view>

namespace longhaul {

std::string fnv1a_hex(std::string_view text);

}  // namespace longhaul
