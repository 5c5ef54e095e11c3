#include "model/chat/string_methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/chat/fail.h"
#include "model/chat/operators.h"
#include "model/chat/python_text.h"
#include "model/chat/unicode.h"

namespace longhaul::chat {
namespace {

constexpr std::size_t kMaxPieces = 1'000'000;
constexpr std::int64_t kMaxWidth = 1 << 20;

// One call: the text, the name and the arguments, with checks.
struct Call {
  const Text& self;
  std::string_view name;
  const Arguments& given;

  const Text& text(std::size_t position, std::string_view parameter) const {
    const Value* value = given.find(position, parameter);
    if (value == nullptr || value->text() == nullptr)
      fail(fmt::format("str.{}() needs a text", name));
    return *value->text();
  }
  // nullopt when it is left out or none.
  std::optional<std::string_view> maybe_text(std::size_t position,
                                             std::string_view parameter) const {
    const Value* value = given.find(position, parameter);
    if (value == nullptr || value->is_none()) return std::nullopt;
    return std::string_view(text(position, parameter).bytes());
  }
  std::optional<std::int64_t> maybe_integer(std::size_t position,
                                            std::string_view parameter) const {
    const Value* value = given.find(position, parameter);
    if (value == nullptr) return std::nullopt;
    if (!value->integer()) fail(fmt::format("str.{}() needs an integer", name));
    return value->integer();
  }
};

Text cut(const Text& text, ByteRange range) { return text.part(range.begin, range.end); }

Value strip(const Call& call) {
  const auto chars = call.maybe_text(0, "chars");
  const Side side = call.name == "lstrip"   ? Side::kLeft
                    : call.name == "rstrip" ? Side::kRight
                                            : Side::kBoth;
  return cut(call.self, stripped(call.self.bytes(), side, chars ? &*chars : nullptr));
}

void add_piece(List& pieces, Text piece) {
  if (pieces.items.size() == kMaxPieces) fail("a text is split into more than a million pieces");
  pieces.items.emplace_back(std::move(piece));
}

// At runs of white space; no empty pieces.
List split_at_spaces(const Text& text, std::int64_t most) {
  List pieces;
  const std::string_view bytes = text.bytes();
  std::size_t at = stripped(bytes, Side::kLeft).begin;
  while (at < bytes.size()) {
    if (most >= 0 && static_cast<std::int64_t>(pieces.items.size()) == most) {
      add_piece(pieces, text.part(at, bytes.size()));
      break;
    }
    std::size_t end = at;
    while (end < bytes.size() && !is_python_space(character_at(bytes, end).code))
      end += character_at(bytes, end).length;
    add_piece(pieces, text.part(at, end));
    at = end + stripped(bytes.substr(end), Side::kLeft).begin;
  }
  return pieces;
}

List split_at(const Text& text, std::string_view separator, std::int64_t most) {
  if (separator.empty()) fail("str.split() needs a separator that is not empty");
  List pieces;
  std::size_t at = 0;
  while (most < 0 || static_cast<std::int64_t>(pieces.items.size()) < most) {
    const std::size_t end = text.bytes().find(separator, at);
    if (end == std::string::npos) break;
    add_piece(pieces, text.part(at, end));
    at = end + separator.size();
  }
  add_piece(pieces, text.part(at, text.size()));
  return pieces;
}

List split_from_right(const Text& text, std::string_view separator, std::int64_t most) {
  if (separator.empty()) fail("str.rsplit() needs a separator that is not empty");
  List pieces;
  std::size_t end = text.size();
  while (most < 0 || static_cast<std::int64_t>(pieces.items.size()) < most) {
    const std::size_t at = std::string_view(text.bytes()).substr(0, end).rfind(separator);
    if (at == std::string::npos) break;
    add_piece(pieces, text.part(at + separator.size(), end));
    end = at;
  }
  add_piece(pieces, text.part(0, end));
  std::reverse(pieces.items.begin(), pieces.items.end());
  return pieces;
}

Value split(const Call& call) {
  const auto separator = call.maybe_text(0, "sep");
  const std::int64_t most = call.maybe_integer(1, "maxsplit").value_or(-1);
  if (call.name == "split")
    return separator ? split_at(call.self, *separator, most) : split_at_spaces(call.self, most);
  if (separator) return split_from_right(call.self, *separator, most);
  if (most >= 0) fail("str.rsplit() without a separator takes no limit here");
  return split_at_spaces(call.self, most);
}

bool is_line_end(char32_t code) {
  return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

Value split_lines(const Call& call) {
  const Value* keep = call.given.find(0, "keepends");
  const bool keep_ends = keep != nullptr && keep->truth();
  const std::string_view bytes = call.self.bytes();
  List lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    std::size_t next = at + c.length;
    if (is_line_end(c.code)) {
      if (c.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      add_piece(lines, call.self.part(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) add_piece(lines, call.self.part(begin, bytes.size()));
  return lines;
}

bool has_affix(const Call& call, const Value& affix) {
  if (const List* several = affix.list()) {
    return std::any_of(several->items.begin(), several->items.end(),
                       [&](const Value& one) { return has_affix(call, one); });
  }
  if (affix.text() == nullptr) fail(fmt::format("str.{}() needs a text", call.name));
  const std::string_view text = call.self.bytes();
  return call.name == "startswith" ? text.starts_with(affix.text()->bytes())
                                   : text.ends_with(affix.text()->bytes());
}

Value find(const Call& call) {
  const std::string& wanted = call.text(0, "sub").bytes();
  if (call.given.positional.size() > 1)
    fail(fmt::format("str.{}() takes one argument here", call.name));
  const bool from_right = call.name.starts_with('r');
  const std::size_t at =
      from_right ? call.self.bytes().rfind(wanted) : call.self.bytes().find(wanted);
  if (at == std::string::npos) {
    if (call.name.ends_with("index")) fail("str.index(): the text is not found");
    return std::int64_t{-1};
  }
  return static_cast<std::int64_t>(
      count_code_points(std::string_view(call.self.bytes()).substr(0, at)));
}

Value count(const Call& call) {
  const std::string& wanted = call.text(0, "sub").bytes();
  if (wanted.empty()) return static_cast<std::int64_t>(count_code_points(call.self.bytes()) + 1);
  std::int64_t n = 0;
  for (std::size_t at = call.self.bytes().find(wanted); at != std::string::npos;
       at = call.self.bytes().find(wanted, at + wanted.size()))
    ++n;
  return n;
}

Value partition(const Call& call) {
  const Text& separator = call.text(0, "sep");
  if (separator.empty()) fail(fmt::format("str.{}() needs a separator", call.name));
  const bool from_right = call.name == "rpartition";
  const std::string& bytes = call.self.bytes();
  const std::size_t at =
      from_right ? bytes.rfind(separator.bytes()) : bytes.find(separator.bytes());
  List parts{.items = {}, .is_tuple = true};
  if (at == std::string::npos) {
    parts.items = {call.self, Text(), Text()};
    if (from_right) std::reverse(parts.items.begin(), parts.items.end());
  } else {
    parts.items = {call.self.part(0, at), separator,
                   call.self.part(at + separator.size(), bytes.size())};
  }
  return parts;
}

Value without_affix(const Call& call) {
  const std::string& affix = call.text(0, "affix").bytes();
  const std::size_t size = call.self.size();
  if (call.name == "removeprefix")
    return call.self.bytes().starts_with(affix) ? call.self.part(affix.size(), size) : call.self;
  return call.self.bytes().ends_with(affix) ? call.self.part(0, size - affix.size()) : call.self;
}

bool all_characters(const Text& text, bool (*is_good)(char32_t)) {
  const std::string_view bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).length)
    if (!is_good(character_at(bytes, at).code)) return false;
  return !bytes.empty();
}

Value kind_of_characters(const Call& call) {
  if (call.name == "isspace") return all_characters(call.self, is_python_space);
  if (call.name == "isalpha") return all_characters(call.self, is_letter);
  if (call.name == "isalnum")
    return all_characters(call.self, [](char32_t c) { return is_letter(c) || is_digit(c); });
  if (call.name == "isupper") return has_only_case(call.self.bytes(), Case::kUpper);
  if (call.name == "islower") return has_only_case(call.self.bytes(), Case::kLower);
  return all_characters(call.self, is_digit);
}

Value pad(const Call& call) {
  const auto width = call.maybe_integer(0, "width");
  if (!width) fail(fmt::format("str.{}() needs a width", call.name));
  if (call.name == "zfill") {
    const bool sign = call.self.bytes().starts_with('-') || call.self.bytes().starts_with('+');
    Text out = call.self.part(0, sign ? 1 : 0);
    out.append(
        padded(call.self.part(sign ? 1 : 0, call.self.size()), *width - (sign ? 1 : 0), 1.0, "0"));
    return out;
  }
  const auto fill = call.maybe_text(1, "fillchar");
  const double left = call.name == "rjust" ? 1.0 : call.name == "ljust" ? 0.0 : 0.5;
  return padded(call.self, *width, left, fill.value_or(" "));
}

Value change_of_case(const Call& call) {
  const Case to = call.name == "upper"   ? Case::kUpper
                  : call.name == "lower" ? Case::kLower
                  : call.name == "title" ? Case::kTitle
                                         : Case::kCapitalize;
  return change_case(call.self, to);
}

// {} and {name} and {0}; formats after ":" are refused.
Value format(const Call& call) {
  Text out;
  const std::string& bytes = call.self.bytes();
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
      out.append(call.self.part(at, at + 1));
      at += 2;
      continue;
    }
    if (c != '{') {
      out.append(call.self.part(at, at + 1));
      ++at;
      continue;
    }
    const std::size_t end = bytes.find('}', at);
    if (end == std::string::npos) fail("str.format(): a \"{\" has no \"}\"");
    const std::string field = bytes.substr(at + 1, end - at - 1);
    if (field.find_first_of(":!.[") != std::string::npos)
      fail(fmt::format("str.format(): {{{}}} is not supported, only {{}} and {{name}}", field));
    const bool is_number =
        !field.empty() && field.find_first_not_of("0123456789") == std::string::npos;
    const std::size_t position = field.empty() ? next++
                                 : is_number && field.size() < 6
                                     ? static_cast<std::size_t>(std::stoul(field))
                                     : call.given.positional.size();
    const Value* value = call.given.find(position, field);
    if (value == nullptr) fail(fmt::format("str.format(): nothing is given for {{{}}}", field));
    out.append(python_str(*value));
    at = end + 1;
  }
  return out;
}

Value affix(const Call& call) {
  const Value* wanted = call.given.find(0, "prefix");
  if (wanted == nullptr || call.given.positional.size() > 1)
    fail(fmt::format("str.{}() takes one argument here", call.name));
  return has_affix(call, *wanted);
}

Value replace(const Call& call) {
  return replaced(call.self, call.text(0, "old").bytes(), call.text(1, "new"),
                  call.maybe_integer(2, "count"));
}

Value join(const Call& call) {
  const Value* items = call.given.find(0, "iterable");
  if (items == nullptr) fail("str.join() needs a list");
  const auto list = items_of(*items);
  for (const Value& item : list->items)
    if (item.text() == nullptr) fail(fmt::format("str.join(): {} is no text", item.type_name()));
  return joined_by(call.self, *list);
}

struct Method {
  std::string_view name;
  Value (*call)(const Call&);
};
constexpr Method kMethods[] = {{"capitalize", change_of_case},
                               {"center", pad},
                               {"count", count},
                               {"endswith", affix},
                               {"find", find},
                               {"format", format},
                               {"index", find},
                               {"isalnum", kind_of_characters},
                               {"isalpha", kind_of_characters},
                               {"isdecimal", kind_of_characters},
                               {"isdigit", kind_of_characters},
                               {"islower", kind_of_characters},
                               {"isnumeric", kind_of_characters},
                               {"isspace", kind_of_characters},
                               {"isupper", kind_of_characters},
                               {"join", join},
                               {"ljust", pad},
                               {"lower", change_of_case},
                               {"lstrip", strip},
                               {"partition", partition},
                               {"removeprefix", without_affix},
                               {"removesuffix", without_affix},
                               {"replace", replace},
                               {"rfind", find},
                               {"rindex", find},
                               {"rjust", pad},
                               {"rpartition", partition},
                               {"rsplit", split},
                               {"rstrip", strip},
                               {"split", split},
                               {"splitlines", split_lines},
                               {"startswith", affix},
                               {"strip", strip},
                               {"title", change_of_case},
                               {"upper", change_of_case},
                               {"zfill", pad}};

const Method* find_method(std::string_view name) {
  const auto* at = std::find_if(std::begin(kMethods), std::end(kMethods),
                                [&](const Method& method) { return method.name == name; });
  return at == std::end(kMethods) ? nullptr : at;
}

}  // namespace

bool is_string_method(std::string_view name) { return find_method(name) != nullptr; }

Value call_string_method(const Text& self, std::string_view name, const Arguments& given) {
  return find_method(name)->call({self, name, given});
}

Text replaced(const Text& text, std::string_view from, const Text& to,
              std::optional<std::int64_t> most) {
  Text out;
  std::int64_t left = most.value_or(-1);
  const std::string& bytes = text.bytes();
  std::size_t done = 0;
  for (std::size_t at = 0; left != 0 && at <= bytes.size(); --left) {
    std::size_t found = bytes.find(from, at);
    if (found == std::string::npos) break;
    if (out.size() + to.size() > (std::size_t{1} << 30)) fail("a text grows too long");
    out.append(text.part(done, found));
    out.append(to);
    done = found + from.size();
    // Nothing stands between any two characters.
    at = !from.empty() ? done
                       : found + (found < bytes.size() ? character_at(bytes, found).length : 1);
  }
  out.append(text.part(done, bytes.size()));
  return out;
}

Text padded(const Text& text, std::int64_t width, double share_left, std::string_view fill) {
  if (count_code_points(fill) != 1) fail("the character to fill with must be one");
  if (width > kMaxWidth) fail("the width is too large");
  const auto length = static_cast<std::int64_t>(count_code_points(text.bytes()));
  const std::int64_t n = std::max<std::int64_t>(width - length, 0);
  // As Python centres: the odd one stands left when the width is odd.
  const std::int64_t left = share_left == 0.5
                                ? n / 2 + (n & width & 1)
                                : static_cast<std::int64_t>(static_cast<double>(n) * share_left);
  Text out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill, Origin::kTemplate);
  out.append(text);
  for (std::int64_t i = left; i < n; ++i) out.append(fill, Origin::kTemplate);
  return out;
}

Text joined_by(const Text& separator, const List& list) {
  Text out;
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(python_str(list.items[i]));
    if (out.size() > (std::size_t{1} << 30)) fail("a text grows too long");
  }
  return out;
}

}  // namespace longhaul::chat
