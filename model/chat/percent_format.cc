// Python's "%s and %5.2f" % values.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/chat/fail.h"
#include "model/chat/operators.h"
#include "model/chat/python_text.h"
#include "model/chat/string_methods.h"

namespace longhaul::chat {
namespace {

struct Place {
  std::string flags;
  std::int64_t width = 0;
  int precision = -1;
  char kind = 0;
};

std::int64_t number_at(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error == std::errc()) at = static_cast<std::size_t>(stop - text.data());
  if (value > 1000) fail("a width in a format is too large");
  return value;
}

Place place_at(std::string_view text, std::size_t& at) {
  Place place;
  while (at < text.size() && std::string_view("-+ 0#").find(text[at]) != std::string_view::npos)
    place.flags += text[at++];
  place.width = number_at(text, at);
  if (at < text.size() && text[at] == '.') {
    ++at;
    place.precision = static_cast<int>(number_at(text, at));
  }
  if (at == text.size()) fail("a format ends with \"%\"");
  place.kind = text[at++];
  return place;
}

std::string digits(const Place& place, const Value& value) {
  const auto number = value.number();
  if (!number) fail(fmt::format("\"%{}\" needs a number, not {}", place.kind, value.type_name()));
  const int precision = place.precision < 0 ? 6 : place.precision;
  switch (place.kind) {
    case 'd':
    case 'i':
    case 'u':
      return value.integer() ? fmt::format("{}", *value.integer())
                             : fmt::format("{:.0f}", std::trunc(*number));
    case 'x':
    case 'X':
    case 'o':
      if (!value.integer() || *value.integer() < 0) fail("a format needs an integer from 0");
      return place.kind == 'x'   ? fmt::format("{:x}", *value.integer())
             : place.kind == 'X' ? fmt::format("{:X}", *value.integer())
                                 : fmt::format("{:o}", *value.integer());
    case 'e':
      return fmt::format("{:.{}e}", *number, precision);
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", *number, precision);
    default:
      return fmt::format("{:.{}g}", *number, std::max(precision, 1));
  }
}

Text filled(const Place& place, const Value& value) {
  Text text;
  if (place.kind == 's' || place.kind == 'r') {
    text = place.kind == 's' ? python_str(value) : python_repr(value);
    if (place.precision >= 0)
      text = *slice_of(text, std::int64_t{0}, std::int64_t{place.precision}, std::nullopt).text();
  } else if (std::string_view("diuxXoefFg").find(place.kind) != std::string_view::npos) {
    std::string written = digits(place, value);
    const bool negative = written.starts_with('-');
    if (place.flags.find('+') != std::string::npos && !negative)
      written.insert(std::size_t{0}, 1, '+');
    if (place.flags.find('0') != std::string::npos && place.flags.find('-') == std::string::npos) {
      const std::size_t sign = written.find_first_of("+-") == 0 ? 1 : 0;
      while (static_cast<std::int64_t>(written.size()) < place.width) written.insert(sign, 1, '0');
    }
    text = Text(std::move(written), Origin::kTemplate);
  } else {
    fail(fmt::format("the format \"%{}\" is not supported", place.kind));
  }
  return padded(text, place.width, place.flags.find('-') != std::string::npos ? 0.0 : 1.0);
}

}  // namespace

Text percent_format(const Text& format, const Value& arguments) {
  const std::string& bytes = format.bytes();
  const bool is_tuple = arguments.list() != nullptr && arguments.list()->is_tuple;
  std::size_t n_used = 0;
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t sign = std::min(bytes.find('%', at), bytes.size());
    out.append(format.part(at, sign));
    at = sign + 1;
    if (sign == bytes.size()) break;
    if (at < bytes.size() && bytes[at] == '(') fail("\"%(name)\" in a format is not supported");
    const Place place = place_at(bytes, at);
    if (place.kind == '%') {
      out.append("%", Origin::kTemplate);
      continue;
    }
    const std::size_t n_given = is_tuple ? arguments.list()->items.size() : 1;
    if (n_used == n_given) fail("a format has more places than values");
    out.append(filled(place, is_tuple ? arguments.list()->items[n_used] : arguments));
    ++n_used;
  }
  if (is_tuple && n_used < arguments.list()->items.size())
    fail("a format has fewer places than values");
  return out;
}

}  // namespace longhaul::chat
