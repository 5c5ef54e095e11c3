// A field of a CSV file.
#pragma once
#include <string>

namespace longhaul {

// The text, between quotes when it holds a character that means something in CSV (RFC 4180).
std::string csv_field(const std::string& text);

}  // namespace longhaul
