// One authenticated or yet unauthenticated TCP connection that carries frames, as C++20 coroutines
// on Boost.Asio. Internal to the control plane; everything runs on the connection's io_context
// thread.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <deque>
#include <exception>
#include <vector>

#include "cluster/wire/codec.h"

namespace longhaul {

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

// Goes with every coroutine of a connection: what it throws comes out of io_context::run(), and
// ends the control thread, which says so. (asio::detached would drop it.)
struct Rethrow {
  void operator()(std::exception_ptr failure) const {
    if (failure) std::rethrow_exception(failure);
  }
};

class TcpChannel {
 public:
  explicit TcpChannel(boost::asio::ip::tcp::socket socket);

  // The next frame. Throws boost::system::system_error when the connection ends and
  // Error(kCorruptData) for what is no frame, is out of order, or is larger than allowed; before
  // welcome() only small frames are.
  boost::asio::awaitable<Frame> read();
  // Queues a frame; write_loop sends it.
  void post(MessageType type, std::span<const std::byte> payload);
  // Sends what is posted until close(). Run it once, beside read().
  boost::asio::awaitable<void> write_loop();
  void welcome() { max_payload_bytes_ = kMaxPayloadBytes; }
  // After this, pending and later calls end. Frames not yet sent are lost.
  void close();
  // Lets write_loop send what is queued and then ends it.
  void close_after_writing();
  bool closed() const { return closed_; }

 private:
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer something_to_write_;
  std::deque<std::vector<std::byte>> outgoing_;
  std::uint64_t next_out_ = 0;
  std::uint64_t next_in_ = 0;
  std::size_t max_payload_bytes_ = kMaxPayloadBytesBeforeWelcome;
  bool closed_ = false;
  bool closing_ = false;
};

}  // namespace longhaul
