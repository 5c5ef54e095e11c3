// A small HTTP server for a few readers, and a client for it. One request for each connection, GET
// and HEAD only; sizes, times and the number of connections are bounded, so that nobody who
// connects costs the job more than a little memory.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tools/status/http_message.h"

namespace longhaul {

struct HttpLimits {
  std::size_t header_bytes = 8192;
  std::size_t connections = 64;            // the oldest gives way
  std::chrono::milliseconds read{5000};    // from connection to a whole request
  std::chrono::milliseconds write{10000};  // of an answer
};

// Owns one thread, of the lowest priority, which calls the handler.
class HttpServer {
 public:
  // Listens; throws kIo.
  HttpServer(const HttpAddress& address, HttpHandler handler, const HttpLimits& limits = {});
  ~HttpServer();  // cuts connections off
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};
// Asks once; blocks. An empty token is not sent. Throws kIo when there is no answer in time.
HttpAnswer http_get(const HttpAddress& address, const std::string& target, const std::string& token,
                    std::chrono::milliseconds limit);

}  // namespace longhaul
