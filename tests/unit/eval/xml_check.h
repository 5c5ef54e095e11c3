// A strict little reader of XML, for pictures that we write: one root, nested elements that close,
// quoted attributes without repetition, known entities.
#pragma once
#include <string>
#include <string_view>

namespace longhaul::test {

// Empty when `text` is well-formed; else what is wrong and where.
std::string xml_problem(std::string_view text);

}  // namespace longhaul::test
