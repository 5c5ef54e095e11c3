#include "tools/status/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace longhaul {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

using RequestParser = http::request_parser<http::empty_body>;
using Reply = http::response<http::string_body>;

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

Reply to_beast(HttpResponse from) {
  Reply response;
  response.result(static_cast<unsigned>(from.status));
  response.set(http::field::content_type, from.content_type);
  response.set(http::field::cache_control, "no-store");
  response.set("Referrer-Policy", "no-referrer");
  response.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : from.headers) response.set(name, value);
  response.keep_alive(false);
  response.body() = std::move(from.body);
  response.prepare_payload();
  return response;
}

HttpResponse refused(int status, std::string_view why) {
  return {.status = status, .body = std::string(why) + "\n"};
}

// What is wrong with what was read.
HttpResponse refusal_of(beast::error_code error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refused(431, "The request's header is too long.");
  return refused(400, "This is no request of HTTP/1.1.");
}

// Nobody is left to be told what is wrong.
bool is_gone(beast::error_code error) {
  return error == beast::error::timeout || error == http::error::end_of_stream ||
         error == http::error::partial_message ||
         error.category() == asio::error::get_system_category();
}

bool has_body(const RequestParser& request) {
  return request.chunked() || request.content_length().value_or(0) > 0;
}

}  // namespace

struct HttpServer::Impl {
  HttpHandler handler;
  HttpLimits limits;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::deque<std::weak_ptr<beast::tcp_stream>> connections;  // oldest first
  std::thread thread;

  Impl(const HttpAddress& address, HttpHandler h, const HttpLimits& l)
      : handler(std::move(h)), limits(l) {
    try {
      const auto found =
          tcp::resolver(context).resolve(address.host, address.port, tcp::resolver::passive);
      const tcp::endpoint endpoint = found.begin()->endpoint();
      acceptor.open(endpoint.protocol());
      acceptor.set_option(tcp::acceptor::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen();
    } catch (const boost::system::system_error& error) {
      throw Error(ErrorCode::kIo, fmt::format("cannot listen on {}:{} for the status page: {}; "
                                              "give --status another port, or 0 for any free one",
                                              address.host, address.port, error.code().message()));
    }
    asio::co_spawn(context, accept_loop(), [](std::exception_ptr failure) {
      if (failure) std::rethrow_exception(failure);  // out of context.run()
    });
    thread = std::thread([this] {
      // The job's threads come first. Linux gives each thread a priority of its own.
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
      try {
        context.run();
      } catch (const std::exception& error) {
        LONGHAUL_LOG(kWarning, kRun, "event=status_ended reason=\"{}\"", error.what());
      }
    });
  }

  ~Impl() {
    context.stop();
    thread.join();
  }

  asio::awaitable<void> accept_loop() {
    for (;;) {
      boost::system::error_code error;
      tcp::socket socket =
          co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (error) {  // such as too many open files: some will be closed
        asio::steady_timer timer(context, std::chrono::milliseconds(50));
        co_await timer.async_wait(asio::use_awaitable);
        continue;
      }
      auto stream = std::make_shared<beast::tcp_stream>(std::move(socket));
      make_room();
      connections.push_back(stream);
      asio::co_spawn(context, session(std::move(stream)), asio::detached);
    }
  }

  void make_room() {
    std::erase_if(connections, [](const auto& connection) { return connection.expired(); });
    while (connections.size() >= limits.connections) {
      if (const auto oldest = connections.front().lock()) oldest->close();
      connections.pop_front();
    }
  }

  asio::awaitable<void> session(std::shared_ptr<beast::tcp_stream> stream) {
    try {
      co_await answer(*stream);
    } catch (const std::exception& error) {  // gone, or too slow
      LONGHAUL_LOG(kDebug, kRun, "event=status_connection_ended reason=\"{}\"", error.what());
    }
  }

  asio::awaitable<void> answer(beast::tcp_stream& stream) {
    beast::flat_buffer buffer(2 * limits.header_bytes);
    RequestParser request;
    request.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    beast::error_code error;
    stream.expires_after(limits.read);
    co_await http::async_read_header(stream, buffer, request,
                                     asio::redirect_error(asio::use_awaitable, error));
    if (error && is_gone(error)) co_return;
    Reply response = to_beast(error ? refusal_of(error) : respond(request));
    const bool is_head = !error && request.get().method() == http::verb::head;
    stream.expires_after(limits.write);
    if (is_head) {
      http::response_serializer<http::string_body> serializer(response);
      co_await http::async_write_header(stream, serializer, asio::use_awaitable);
    } else {
      co_await http::async_write(stream, response, asio::use_awaitable);
    }
    co_await close(stream);
  }

  // What was sent and not read would otherwise take the answer back.
  static asio::awaitable<void> close(beast::tcp_stream& stream) {
    beast::error_code error;
    stream.socket().shutdown(tcp::socket::shutdown_send, error);
    stream.expires_after(std::chrono::seconds(1));
    std::array<char, 4096> rest;
    for (std::size_t n = 0; !error && n < (std::size_t{2} << 20);) {
      n += co_await stream.async_read_some(asio::buffer(rest),
                                           asio::redirect_error(asio::use_awaitable, error));
    }
  }

  HttpResponse respond(const RequestParser& parser) {
    const auto& from = parser.get();
    if (has_body(parser)) return refused(413, "A request must not have a body.");
    if (from.method() != http::verb::get && from.method() != http::verb::head) {
      HttpResponse response = refused(405, "There are GET and HEAD.");
      response.headers = {{"Allow", "GET, HEAD"}};
      return response;
    }
    HttpRequest request = request_of(std::string_view(text_of(from.target())));
    request.host = text_of(from[http::field::host]);
    request.authorization = text_of(from[http::field::authorization]);
    try {
      return handler(request);
    } catch (const std::exception& error) {
      LONGHAUL_LOG(kWarning, kRun, "event=status_failed reason=\"{}\"", error.what());
      return refused(500, "The status cannot be shown; the job goes on.");
    }
  }
};

HttpServer::HttpServer(const HttpAddress& address, HttpHandler handler, const HttpLimits& limits)
    : impl_(std::make_unique<Impl>(address, std::move(handler), limits)) {}
HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

namespace {

asio::awaitable<HttpAnswer> ask(HttpAddress address, std::string target, std::string token,
                                std::chrono::milliseconds limit) {
  const auto executor = co_await asio::this_coro::executor;
  tcp::resolver resolver(executor);
  const auto found =
      co_await resolver.async_resolve(address.host, address.port, asio::use_awaitable);
  beast::tcp_stream stream(executor);
  stream.expires_after(limit);
  co_await stream.async_connect(found, asio::use_awaitable);
  http::request<http::empty_body> request(http::verb::get, target, 11);
  const bool is_v6 = address.host.find(':') != std::string::npos;
  request.set(http::field::host, is_v6 ? fmt::format("[{}]:{}", address.host, address.port)
                                       : fmt::format("{}:{}", address.host, address.port));
  if (!token.empty()) request.set(http::field::authorization, "Bearer " + token);
  co_await http::async_write(stream, request, asio::use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::uint64_t{64} << 20);
  co_await http::async_read(stream, buffer, parser, asio::use_awaitable);
  auto response = parser.release();
  co_return HttpAnswer{.status = static_cast<int>(response.result_int()),
                       .body = std::move(response.body())};
}

}  // namespace

HttpAnswer http_get(const HttpAddress& address, const std::string& target, const std::string& token,
                    std::chrono::milliseconds limit) {
  asio::io_context context{1};
  HttpAnswer answer;
  std::exception_ptr failure;
  asio::co_spawn(context, ask(address, target, token, limit),
                 [&](std::exception_ptr error, HttpAnswer result) {
                   failure = error;
                   answer = std::move(result);
                 });
  context.run();
  if (!failure) return answer;
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& error) {
    throw Error(ErrorCode::kIo, fmt::format("no answer from {}:{}: {}", address.host, address.port,
                                            error.code().message()));
  }
}

}  // namespace longhaul
