#include "tools/status/status_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/sha256.h"
#include "cluster/wire/auth.h"
#include "tools/status/status_forms.h"

namespace longhaul {
namespace {

// However many ask: the job is looked at so often and no more.
constexpr auto kLookAgain = std::chrono::milliseconds(250);

std::string host_without_port(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.rfind(':'));
}

std::string given_token(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  if (request.authorization.starts_with(kBearer))
    return request.authorization.substr(kBearer.size());
  const auto found = request.query.find("token");
  return found == request.query.end() ? "" : found->second;
}

std::size_t columns_of(const HttpRequest& request) {
  std::size_t columns = 80;
  if (const auto found = request.query.find("columns"); found != request.query.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  return std::clamp<std::size_t>(columns, 60, 400);
}

HttpResponse page(const JobStatus& status, const HttpRequest& request) {
  constexpr std::string_view kHtml = "text/html; charset=utf-8";
  if (request.query.contains("part"))
    return {.content_type = std::string(kHtml), .body = status_html(status)};
  const std::string nonce = random_token().substr(0, 32);
  return {.content_type = std::string(kHtml),
          .body = status_page(status, nonce),
          .headers = {{"Content-Security-Policy",
                       fmt::format("default-src 'none'; style-src 'nonce-{0}'; script-src "
                                   "'nonce-{0}'; connect-src 'self'; base-uri 'none'; "
                                   "form-action 'none'; frame-ancestors 'none'",
                                   nonce)}}};
}

}  // namespace

bool equal_tokens(const std::string& a, const std::string& b) {
  const std::string first = sha256_of(a);
  const std::string second = sha256_of(b);
  unsigned difference = 0;
  for (std::size_t i = 0; i < first.size(); ++i)
    difference |= static_cast<unsigned>(first[i] ^ second[i]);
  return difference == 0;
}

std::string random_token() {
  std::string text;
  for (const std::byte b : random_secret())
    text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

std::optional<HttpResponse> StatusRoutes::refusal(const HttpRequest& request) const {
  if (token_.empty()) {
    if (is_loopback(host_without_port(request.host))) return std::nullopt;
    return HttpResponse{.status = 403,
                        .body =
                            "This server answers requests to localhost alone; ask for it by "
                            "that name, or start the job with a token.\n"};
  }
  if (equal_tokens(given_token(request), token_)) return std::nullopt;
  return HttpResponse{.status = 401,
                      .body = "A token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN.\n",
                      .headers = {{"WWW-Authenticate", "Bearer"}}};
}

const JobStatus& StatusRoutes::status() {
  const Clock::time_point now = Clock::now();
  if (!status_ || now - read_at_ >= kLookAgain) {
    status_ = read_();
    read_at_ = now;
  }
  return *status_;
}

HttpResponse StatusRoutes::answer(const HttpRequest& request) {
  if (auto refused = refusal(request)) return *std::move(refused);
  if (request.path == "/") return page(status(), request);
  if (request.path == "/status.json")
    return {.content_type = "application/json", .body = to_text(status_json(status())) + "\n"};
  if (request.path == "/metrics")
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = status_metrics(status())};
  if (request.path == "/status.txt") return {.body = status_text(status(), columns_of(request))};
  return {.status = 404, .body = "There are /, /status.json, /status.txt and /metrics.\n"};
}

}  // namespace longhaul
