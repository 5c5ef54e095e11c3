#include "tools/status/http_message.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace longhaul {
namespace {

std::optional<int> hexadecimal(std::string_view digits) {
  int value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      if (const auto value = hexadecimal(text.substr(i + 1, 2))) {
        out += static_cast<char>(*value);
        i += 2;
        continue;
      }
    }
    out += text[i] == '+' ? ' ' : text[i];
  }
  return out;
}

}  // namespace

HttpRequest request_of(std::string_view target) {
  HttpRequest request;
  const std::size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark == std::string_view::npos) return request;
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const std::size_t end = rest.find('&');
    const std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const std::size_t equals = part.find('=');
    request.query[decoded(part.substr(0, equals))] =
        equals == std::string_view::npos ? "" : decoded(part.substr(equals + 1));
  }
  return request;
}

HttpAddress http_address(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no [ADDRESS:]PORT, such as 9000, 10.1.0.5:9000 or "
                            "[::1]:9000: {}",
                            text, why));
  };
  HttpAddress address;
  std::string_view port = text;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']'))
      host = host.substr(1, host.size() - 2);
    else if (host.find(':') != std::string_view::npos)
      refuse("an IPv6 address stands in brackets");
    if (host.empty()) refuse("the address before the colon is missing");
    address.host = host;
  }
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || number > 65535)
    refuse("a port is a number up to 65535");
  address.port = port;
  return address;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace longhaul
