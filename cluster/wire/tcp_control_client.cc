// A worker's side of the control plane. The control thread runs the io_context: it reads commands
// into a queue, sends results and heartbeats. The step thread calls next() and answer().
#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "cluster/wire/bytes.h"
#include "cluster/wire/control_plane.h"
#include "cluster/wire/tcp_channel.h"

namespace longhaul {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class TcpWorkerLink final : public WorkerLink {
 public:
  TcpWorkerLink(ControlClientConfig config, Deadline deadline) : config_(std::move(config)) {
    asio::co_spawn(context_, run(), Rethrow());
    thread_ = std::thread([this] { run_context(); });
    std::unique_lock lock(mutex_);
    const bool settled =
        changed_.wait_until(lock, deadline, [&] { return welcome_ || !lost_.empty(); });
    if (welcome_) return;
    const std::string reason = lost_;
    const ErrorCode code = why_lost_;
    lock.unlock();
    stop();
    throw Error(settled ? code : ErrorCode::kTimeout,
                fmt::format("rank {} cannot reach the coordinator at {}:{}: {}", config_.rank.value,
                            config_.address, config_.port, settled ? reason : "no answer in time"));
  }

  ~TcpWorkerLink() override { stop(); }

  std::optional<StepCommand> next() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !commands_.empty() || !lost_.empty(); });
    if (commands_.empty()) return std::nullopt;
    StepCommand command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }

  bool has_next() override {
    const std::lock_guard lock(mutex_);
    return !commands_.empty() || !lost_.empty();
  }

  void answer(StepResult result) override {
    asio::post(context_, [this, bytes = encode(result)] {
      if (channel_) channel_->post(MessageType::kResult, bytes);
    });
  }

 private:
  // Ends the control thread after what is queued has been sent, within two seconds.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    asio::post(context_, [this] {
      if (channel_ && !channel_->closed()) {
        channel_->close_after_writing();
      } else {
        context_.stop();
      }
    });
    asio::steady_timer limit(context_, std::chrono::seconds(2));
    limit.async_wait([this](boost::system::error_code error) {
      if (!error) context_.stop();
    });
    if (thread_.joinable()) thread_.join();
  }

  void run_context() {
    try {
      context_.run();
    } catch (...) {
      if (config_.on_broken) config_.on_broken(std::current_exception());
      const std::lock_guard lock(mutex_);
      if (lost_.empty()) lost_ = "this rank's control thread has failed";
      changed_.notify_all();
    }
  }

  asio::awaitable<void> run() {
    std::string reason;
    try {
      tcp::socket socket(context_);
      const tcp::endpoint endpoint(asio::ip::make_address(config_.address), config_.port);
      co_await socket.async_connect(endpoint, asio::use_awaitable);
      channel_ = std::make_shared<TcpChannel>(std::move(socket));
      asio::co_spawn(context_, write_all(), Rethrow());
      co_await handshake();
      asio::co_spawn(context_, beat(), Rethrow());
      asio::co_spawn(context_, watch(), Rethrow());
      reason = co_await read_all();
    } catch (const boost::system::system_error& error) {
      if (error.code() == boost::system::errc::too_many_files_open ||
          error.code() == boost::system::errc::too_many_files_open_in_system) {
        const std::lock_guard lock(mutex_);
        why_lost_ = ErrorCode::kIo;  // another try finds the same limit
      }
      reason = silence_.empty() ? "its connection was closed: " + error.code().message() : silence_;
    } catch (const Error& error) {
      reason = error.what();
    }
    lose(reason);
    if (channel_) channel_->close();
    context_.stop();
  }

  asio::awaitable<void> write_all() {
    const auto channel = channel_;
    try {
      co_await channel->write_loop();
    } catch (const boost::system::system_error&) {
      channel->close();
    }
  }

  asio::awaitable<void> handshake() {
    const Nonce nonce = random_nonce();
    ByteWriter hello;
    hello.number(config_.rank.value);
    hello.text(config_.host);
    for (const std::byte b : nonce) hello.number(static_cast<std::uint8_t>(b));
    channel_->post(MessageType::kHello, hello.take());
    const Frame challenge = co_await channel_->read();
    ByteReader in(challenge.payload, "challenge");
    Nonce coordinator_nonce;
    for (std::byte& b : coordinator_nonce) b = static_cast<std::byte>(in.number<std::uint8_t>());
    Proof proof;
    for (std::byte& b : proof) b = static_cast<std::byte>(in.number<std::uint8_t>());
    in.finish();
    if (challenge.header.type != MessageType::kChallenge ||
        !proofs_equal(proof, make_proof(config_.secret, Role::kCoordinator, nonce,
                                        coordinator_nonce, config_.rank.value))) {
      throw Error(ErrorCode::kPeerFailed, "whoever listens there does not know this job's secret");
    }
    ByteWriter answer;
    for (const std::byte b :
         make_proof(config_.secret, Role::kWorker, nonce, coordinator_nonce, config_.rank.value)) {
      answer.number(static_cast<std::uint8_t>(b));
    }
    channel_->post(MessageType::kProof, answer.take());
    const Frame welcome = co_await channel_->read();
    if (welcome.header.type != MessageType::kWelcome)
      throw Error(ErrorCode::kPeerFailed, "the coordinator did not welcome us");
    channel_->welcome();
    const std::lock_guard lock(mutex_);
    welcome_ = true;
    changed_.notify_all();
  }

  // Returns why reading ended.
  asio::awaitable<std::string> read_all() {
    for (;;) {
      const Frame frame = co_await channel_->read();
      last_heard_ = Clock::now();
      if (frame.header.type == MessageType::kMayGo) {
        may_go_ = true;
        continue;
      }
      if (frame.header.type == MessageType::kAlive) {
        coordinator_phase_ = decode_phase(frame.payload);
        continue;
      }
      if (frame.header.type == MessageType::kAbort) {
        how_ = LostCoordinator::kAborted;
        co_return "the coordinator said abort";
      }
      if (frame.header.type != MessageType::kCommand)
        co_return "the coordinator sent what is no command";
      StepCommand command = decode_command(frame.payload);
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
      changed_.notify_all();
    }
  }

  asio::awaitable<void> beat() {
    const auto channel = channel_;
    asio::steady_timer timer(context_);
    bool has_asked = false;
    while (!channel->closed()) {
      if (!has_asked && config_.stop_requested && config_.stop_requested()) {
        channel->post(MessageType::kStop, {});
        has_asked = true;
      }
      Heartbeat heartbeat;
      if (config_.board != nullptr) heartbeat.phase = config_.board->read();
      if (config_.reports != nullptr) heartbeat.report = config_.reports->newest();
      channel->post(MessageType::kHeartbeat, encode(heartbeat));
      timer.expires_after(config_.times.heartbeat_period);
      co_await timer.async_wait(asio::use_awaitable);
    }
  }

  // Takes a silent coordinator for dead.
  asio::awaitable<void> watch() {
    const auto channel = channel_;
    asio::steady_timer timer(context_);
    last_heard_ = Clock::now();
    while (!channel->closed()) {
      const Clock::time_point before = Clock::now();
      timer.expires_after(config_.times.heartbeat_period);
      co_await timer.async_wait(asio::use_awaitable);
      last_heard_ += time_held_up(config_.times, Clock::now() - before);
      const auto silence = Clock::now() - last_heard_;
      if (silence <= config_.times.dead_after) continue;
      silence_ = fmt::format("it has not been heard of for {} s",
                             std::chrono::duration_cast<std::chrono::seconds>(silence).count());
      channel->close();  // read_all ends then
    }
  }

  void lose(const std::string& reason) {
    bool tell = false;
    bool was_let_go = false;
    {
      const std::lock_guard lock(mutex_);
      if (lost_.empty()) lost_ = reason;
      was_let_go = may_go_ && silence_.empty();
      tell = welcome_ && !stopping_;
      changed_.notify_all();
    }
    if (tell && was_let_go && config_.on_left) config_.on_left();
    if (!tell || was_let_go || !config_.on_lost) return;
    config_.on_lost(how_, coordinator_phase_ ? fmt::format("{}; last heard of it: {}", reason,
                                                           to_text(*coordinator_phase_))
                                             : reason);
  }

  ControlClientConfig config_;
  asio::io_context context_{1};
  // Control thread only, up to thread_.
  std::shared_ptr<TcpChannel> channel_;
  Clock::time_point last_heard_;
  std::optional<PhaseReport> coordinator_phase_;
  std::string silence_;  // why watch() closed the channel
  bool may_go_ = false;  // that the coordinator closes the connection is no loss
  LostCoordinator how_ = LostCoordinator::kGone;
  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<StepCommand> commands_;
  bool welcome_ = false;
  bool stopping_ = false;
  std::string lost_;
  ErrorCode why_lost_ = ErrorCode::kPeerFailed;
};

}  // namespace

std::unique_ptr<WorkerLink> connect_to_coordinator(ControlClientConfig config, Deadline deadline) {
  return std::make_unique<TcpWorkerLink>(std::move(config), deadline);
}

}  // namespace longhaul
