// Sets of Unicode characters, and the bytes that spell them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/forms/expressions.h"

namespace longhaul::forms {

struct CodePointRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  // included
  bool operator==(const CodePointRange&) const = default;
};

// Sorted, disjoint, not touching ranges. Surrogates may be in it; they have no spelling.
class CodePointSet {
 public:
  static constexpr std::uint32_t kLast = 0x10FFFF;
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);
  explicit CodePointSet(std::vector<CodePointRange> ranges);  // in any order
  static CodePointSet all() { return {{0, kLast}}; }

  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet without(const CodePointSet& other) const;
  std::span<const CodePointRange> ranges() const { return ranges_; }

 private:
  void normalise();
  std::vector<CodePointRange> ranges_;
};

// How characters become bytes.
enum class Spelling {
  kUtf8,
  kJsonString,  // UTF-8 inside a JSON string; what must be escaped is, in the shortest way
};

// One character of the set.
ExpressionId one_of(Expressions& expressions, const CodePointSet& set, Spelling spelling);
// `text` (UTF-8) as these bytes.
std::string spelled(std::string_view text, Spelling spelling);

}  // namespace longhaul::forms
