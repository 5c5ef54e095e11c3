// Text inside XML and HTML.
#pragma once
#include <string>
#include <string_view>

namespace longhaul {

// Text with the characters that XML reserves written as entities; control characters become spaces.
std::string xml_escaped(std::string_view text);

}  // namespace longhaul
