#include "tools/status/status_service.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/print_stderr.h"
#include "tools/status/status_routes.h"

namespace longhaul {

std::string token_from(const std::filesystem::path& file) {
  std::string token = read_file(file, std::size_t{1} << 16);
  token = token.substr(0, token.find_first_of("\r\n"));
  constexpr std::size_t kLeast = 16;
  require(token.size() >= kLeast,
          fmt::format("{}: its first line is the token, which must have at least {} characters",
                      file.string(), kLeast));
  return token;
}

StatusService::StatusService(const StatusConfig& config, StatusBoard& board) {
  if (config.address.empty()) return;
  const HttpAddress address = http_address(config.address);
  const bool is_random = config.token_file.empty() && !is_loopback(address.host);
  const std::string token = is_random                   ? random_token()
                            : config.token_file.empty() ? ""
                                                        : token_from(config.token_file);
  const auto routes = std::make_shared<StatusRoutes>([&board] { return board.read(); }, token);
  server_ = std::make_unique<HttpServer>(
      address, [routes](const HttpRequest& request) { return routes->answer(request); });
  const bool is_v6 = address.host.find(':') != std::string::npos;
  print_stderr("longhaul: status at http://{}{}{}:{}/{}{}\n", is_v6 ? "[" : "", address.host,
               is_v6 ? "]" : "", server_->port(), is_random ? "?token=" : "",
               is_random ? token : "");
}

}  // namespace longhaul
