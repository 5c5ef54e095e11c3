#include "model/forms/code_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace longhaul::forms {
namespace {

// The sequences of byte ranges that spell a range of characters; after Russ Cox, "Regular
// Expression Matching in the Wild" (2010), as in RE2.
class Utf8Ranges {
 public:
  Utf8Ranges(Expressions& expressions, std::vector<ExpressionId>& ways)
      : expressions_(expressions), ways_(ways) {}

  void add(std::uint32_t first, std::uint32_t last) {
    for (const std::uint32_t end : {0x7FU, 0x7FFU, 0xD7FFU, 0xDFFFU, 0xFFFFU}) {
      if (first <= end && end < last) {
        add(first, end);
        first = end + 1;
      }
    }
    if (first >= 0xD800 && last <= 0xDFFF) return;  // surrogates are no characters
    if (last <= 0x7F) {
      ways_.push_back(expressions_.byte_range(static_cast<std::uint8_t>(first),
                                              static_cast<std::uint8_t>(last)));
      return;
    }
    for (std::uint32_t bits = 6; bits <= 18; bits += 6) {
      const std::uint32_t mask = (1U << bits) - 1;
      if ((first & ~mask) == (last & ~mask)) break;
      if ((first & mask) != 0) {
        add(first, first | mask);
        add((first | mask) + 1, last);
        return;
      }
      if ((last & mask) != mask) {
        add(first, (last & ~mask) - 1);
        add(last & ~mask, last);
        return;
      }
    }
    add_bytes(first, last);
  }

 private:
  static int encode(std::uint32_t c, std::array<std::uint8_t, 4>& bytes) {
    const int n = c <= 0x7FF ? 2 : c <= 0xFFFF ? 3 : 4;
    for (int i = n - 1; i > 0; --i, c >>= 6) {
      bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
    }
    const std::uint32_t lead = n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0;
    bytes[0] = static_cast<std::uint8_t>(lead | c);
    return n;
  }

  void add_bytes(std::uint32_t first, std::uint32_t last) {
    std::array<std::uint8_t, 4> from = {};
    std::array<std::uint8_t, 4> to = {};
    const int n = encode(first, from);
    encode(last, to);
    ExpressionId way = kEmpty;
    for (int i = n - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      way = expressions_.concat(expressions_.byte_range(from[at], to[at]), way);
    }
    ways_.push_back(way);
  }

  Expressions& expressions_;
  std::vector<ExpressionId>& ways_;
};

// RFC 8259, section 7: what may not stand for itself in a string.
const CodePointSet& escaped_in_json() {
  static const CodePointSet set = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  return set;
}

std::string json_escape(std::uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", c);
  }
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) : ranges_(ranges) {
  normalise();
}

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) : ranges_(std::move(ranges)) {
  normalise();
}

void CodePointSet::normalise() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CodePointRange> merged;
  for (const CodePointRange& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalise();
}

CodePointSet CodePointSet::complement() const {
  CodePointSet result;
  std::uint32_t from = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > from) result.ranges_.push_back({from, range.first - 1});
    from = range.last + 1;
  }
  if (from <= kLast) result.ranges_.push_back({from, kLast});
  return result;
}

CodePointSet CodePointSet::without(const CodePointSet& other) const {
  CodePointSet rest = complement();
  rest.add(other);
  return rest.complement();
}

ExpressionId one_of(Expressions& expressions, const CodePointSet& set, Spelling spelling) {
  std::vector<ExpressionId> ways;
  Utf8Ranges utf8(expressions, ways);
  if (spelling == Spelling::kUtf8) {
    for (const CodePointRange& range : set.ranges()) utf8.add(range.first, range.last);
    return expressions.either(std::move(ways));
  }
  const CodePointSet plain = set.without(escaped_in_json());
  for (const CodePointRange& range : plain.ranges()) utf8.add(range.first, range.last);
  const CodePointSet escaped = set.without(plain);
  for (const CodePointRange& range : escaped.ranges()) {
    for (std::uint32_t c = range.first; c <= range.last; ++c) {
      ways.push_back(expressions.literal(json_escape(c)));
    }
  }
  return expressions.either(std::move(ways));
}

std::string spelled(std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kUtf8) return std::string(text);
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      result += json_escape(byte);
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace longhaul::forms
