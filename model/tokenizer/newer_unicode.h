// Characters that Unicode 15, 15.1 and 16 added, by general category: the `tokenizers` library
// knows them, PCRE2 10.42 (Unicode 14) does not. Made by make_unicode_ranges.py of
// tests/golden/tokenizer; harmless beside a newer PCRE2.
#pragma once
#include <span>
#include <string_view>

namespace longhaul::tokenization {

struct CategoryRange {
  std::string_view category;  // two letters: "Lo"
  char32_t first, last;       // both included
};

std::span<const CategoryRange> newer_characters();

}  // namespace longhaul::tokenization
