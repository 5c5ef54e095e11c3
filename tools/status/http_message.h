// A request and an answer of HTTP, as far as a status server needs them.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace longhaul {

struct HttpRequest {
  std::string path;                          // "/status.json"
  std::map<std::string, std::string> query;  // decoded
  std::string host;                          // of the header, with its port
  std::string authorization;                 // of the header
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::map<std::string, std::string> headers = {};  // besides
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

// Path and query of a request's target; what is not encoded well stays as it is.
HttpRequest request_of(std::string_view target);

// "[ADDRESS:]PORT": "9000", "0.0.0.0:9000", "[::1]:9000", "node1:9000". Throws kInvalidArgument.
struct HttpAddress {
  std::string host = "127.0.0.1";
  std::string port;
};
HttpAddress http_address(std::string_view text);
// Without anybody else's way in: "localhost", "127.1.2.3", "::1".
bool is_loopback(std::string_view host);

}  // namespace longhaul
