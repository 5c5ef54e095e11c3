// Short names for values: FNV-1a with 64 bits, as 16 hexadecimal digits. Against mix-ups, not
// against forgery.
#pragma once
#include <string>
#include <string_view>

namespace longhaul {

std::string fingerprint_of(std::string_view text);

}  // namespace longhaul
