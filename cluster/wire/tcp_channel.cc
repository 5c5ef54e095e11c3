#include "cluster/wire/tcp_channel.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/error.h"

namespace longhaul {

namespace asio = boost::asio;

TcpChannel::TcpChannel(asio::ip::tcp::socket socket)
    : socket_(std::move(socket)),
      something_to_write_(socket_.get_executor(), asio::steady_timer::time_point::max()) {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
}

asio::awaitable<Frame> TcpChannel::read() {
  std::array<std::byte, kFrameHeaderBytes> head;
  co_await asio::async_read(socket_, asio::buffer(head), asio::use_awaitable);
  Frame frame;
  frame.header = decode_frame_header(head, max_payload_bytes_);
  if (frame.header.sequence != next_in_) {
    throw Error(ErrorCode::kCorruptData, fmt::format("message {} came where {} was expected",
                                                     frame.header.sequence, next_in_));
  }
  ++next_in_;
  frame.payload.resize(frame.header.payload_bytes);
  co_await asio::async_read(socket_, asio::buffer(frame.payload), asio::use_awaitable);
  check_payload(frame.header, frame.payload);
  co_return frame;
}

void TcpChannel::post(MessageType type, std::span<const std::byte> payload) {
  if (closed_ || closing_) return;
  outgoing_.push_back(encode_frame(type, next_out_++, payload));
  something_to_write_.cancel();
}

asio::awaitable<void> TcpChannel::write_loop() {
  while (!closed_) {
    if (outgoing_.empty()) {
      if (closing_) break;
      boost::system::error_code cancelled;  // cancelling the timer is how post() wakes this loop
      something_to_write_.expires_at(asio::steady_timer::time_point::max());
      co_await something_to_write_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
      continue;
    }
    const std::vector<std::byte> frame = std::move(outgoing_.front());
    outgoing_.pop_front();
    co_await asio::async_write(socket_, asio::buffer(frame), asio::use_awaitable);
  }
  close();
}

void TcpChannel::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  something_to_write_.cancel();
}

void TcpChannel::close_after_writing() {
  closing_ = true;
  something_to_write_.cancel();
}

}  // namespace longhaul
