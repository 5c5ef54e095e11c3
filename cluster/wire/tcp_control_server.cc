// The coordinator's side of the control plane. The control thread runs the io_context and owns the
// channels; the coordinator's thread calls the public functions. They share `Shared`, under one
// mutex.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cluster/wire/bytes.h"
#include "cluster/wire/control_plane.h"
#include "cluster/wire/tcp_channel.h"

namespace longhaul {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// When a worker may go without being taken for lost.
enum class MayGo {
  kNever,
  kWhenAllIsAnswered,  // it was told to shut down, which it answers like every command
  kAtOnce,             // it was let go in another way
};

// A stranger's words go into the log: no line of it may be made by them.
bool is_host_name(std::string_view text) {
  return !text.empty() && text.size() <= 255 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

// What is known of one worker.
struct Peer {
  WorkerStatus status;
  Clock::time_point last_heard = Clock::now();
  std::deque<StepResult> results;
  std::shared_ptr<TcpChannel> channel;  // control thread only
  std::int64_t n_unanswered = 0;        // commands
  MayGo may_go = MayGo::kNever;
  bool gone = false;  // its connection has ended

  bool is_free_to_go() const {
    return may_go == MayGo::kAtOnce || (may_go == MayGo::kWhenAllIsAnswered && n_unanswered == 0);
  }
  void expect(Rank rank) {
    if (gone) throw Error(ErrorCode::kPeerFailed, fmt::format("rank {} has shut down", rank.value));
    if (may_go == MayGo::kWhenAllIsAnswered) may_go = MayGo::kNever;
  }
};

struct Shared {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<Rank, Peer> peers;
  std::string failure;  // of the first worker that failed; then nothing goes on
  bool shutting_down = false;
  std::function<void(const std::string&)> on_failure;

  std::vector<WorkerStatus> statuses_locked() const {
    std::vector<WorkerStatus> out;
    for (const auto& [rank, peer] : peers) {
      out.push_back(peer.status);
      out.back().silent_ms =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - peer.last_heard)
              .count();
    }
    return out;
  }

  void fail(Rank rank, std::string_view reason) {
    std::string first;
    {
      const std::lock_guard lock(mutex);
      Peer& peer = peers.at(rank);
      if (failure.empty() && !shutting_down && !peer.is_free_to_go()) {
        WorkerStatus status = peer.status;
        status.connected = true;  // for the text: the reason says what happened
        status.silent_ms = 0;
        failure = fmt::format("{}; last heard: {}", reason, to_text(status));
        first = failure;
      }
      peer.status.connected = false;
      peer.gone = true;
      changed.notify_all();
    }
    if (!first.empty() && on_failure) on_failure(first);
  }
};

template <std::size_t kSize>
std::array<std::byte, kSize> read_array(ByteReader& in) {
  std::array<std::byte, kSize> out;
  for (std::byte& b : out) b = static_cast<std::byte>(in.number<std::uint8_t>());
  return out;
}

}  // namespace

struct ControlServer::Impl {
  Config config;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::uint16_t port = 0;
  std::deque<std::weak_ptr<TcpChannel>> strangers;  // who have not proved themselves, oldest first
  std::thread thread;

  explicit Impl(const Config& c) : config(c) {
    shared->on_failure = c.on_failure;
    for (const Rank rank : IdRange<Rank>(c.n_workers)) shared->peers[rank].status.rank = rank;
    try {
      const tcp::endpoint endpoint(asio::ip::make_address(c.bind_address), c.port);
      acceptor.open(endpoint.protocol());
      acceptor.bind(endpoint);
      acceptor.listen();
      port = acceptor.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
      throw Error(ErrorCode::kIo, fmt::format("cannot listen on {}:{} for the workers: {}",
                                              c.bind_address, c.port, error.code().message()));
    }
    asio::co_spawn(context, accept_loop(), Rethrow());
    thread = std::thread([this] { run(); });
  }

  void run() {
    try {
      context.run();
    } catch (...) {
      if (config.on_broken) config.on_broken(std::current_exception());
      const std::lock_guard lock(shared->mutex);
      if (shared->failure.empty()) shared->failure = "the coordinator's control thread has failed";
      shared->changed.notify_all();
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(shared->mutex);
      shared->shutting_down = true;
    }
    asio::post(context, [this] {
      boost::system::error_code ignored;
      acceptor.close(ignored);
      for (auto& [rank, peer] : shared->peers) {
        if (peer.channel) peer.channel->close_after_writing();
      }
    });
    // Workers that take nothing any more must not hold us up.
    asio::steady_timer limit(context, std::chrono::seconds(2));
    limit.async_wait([this](boost::system::error_code) { context.stop(); });
    asio::post(context, [&limit, this] { stop_when_idle(limit); });
    thread.join();
    // Links may keep `shared` alive; its channels must not outlive the context that they live in.
    for (auto& [rank, peer] : shared->peers) peer.channel.reset();
  }

  void stop_when_idle(asio::steady_timer& limit) {
    for (const auto& [rank, peer] : shared->peers) {
      if (peer.channel && !peer.channel->closed()) {
        asio::post(context, [&limit, this] {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          stop_when_idle(limit);
        });
        return;
      }
    }
    limit.cancel();
  }

  asio::awaitable<void> accept_loop() {
    for (;;) {
      boost::system::error_code error;
      tcp::socket socket =
          co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (!acceptor.is_open()) co_return;
      if (error) {  // such as too many open files: some will be closed
        asio::steady_timer timer(context, std::chrono::milliseconds(50));
        co_await timer.async_wait(asio::use_awaitable);
        continue;
      }
      auto channel = std::make_shared<TcpChannel>(std::move(socket));
      make_room_for_strangers();
      strangers.push_back(channel);
      asio::co_spawn(context, session(std::move(channel)), Rethrow());
    }
  }

  void make_room_for_strangers() {
    constexpr std::size_t kBesideWorkers = 32;
    const auto most = static_cast<std::size_t>(config.n_workers) + kBesideWorkers;
    std::erase_if(strangers, [](const auto& stranger) {
      const auto channel = stranger.lock();
      return channel == nullptr || channel->closed();
    });
    while (strangers.size() >= most) {
      if (const auto oldest = strangers.front().lock()) oldest->close();
      strangers.pop_front();
    }
  }

  // One connection from first byte to last.
  asio::awaitable<void> session(std::shared_ptr<TcpChannel> channel) {
    asio::co_spawn(context, write_all(channel), Rethrow());
    auto limit = std::make_shared<asio::steady_timer>(context, config.times.handshake_limit);
    limit->async_wait([channel](boost::system::error_code error) {
      if (!error) channel->close();
    });
    std::optional<Rank> rank;
    std::string reason = "its connection was closed";
    try {
      rank = co_await handshake(*channel);
      limit->cancel();
      admit(*rank, channel);
      asio::co_spawn(context, watch(*rank, channel), Rethrow());
      co_await read_all(*rank, *channel);
    } catch (const boost::system::system_error&) {
    } catch (const Error& error) {
      reason = error.what();
      LONGHAUL_LOG(kWarning, kWire, "a connection was refused or ended: {}", error.what());
    }
    limit->cancel();
    channel->close();
    if (rank) shared->fail(*rank, fmt::format("rank {} is gone: {}", rank->value, reason));
  }

  static asio::awaitable<void> write_all(std::shared_ptr<TcpChannel> channel) {
    try {
      co_await channel->write_loop();
    } catch (const boost::system::system_error&) {
      channel->close();  // the reader notices and says whose connection it was
    }
  }

  asio::awaitable<Rank> handshake(TcpChannel& channel) {
    const Frame hello = co_await channel.read();
    if (hello.header.type != MessageType::kHello)
      throw Error(ErrorCode::kCorruptData, "a connection did not begin with hello");
    ByteReader in(hello.payload, "hello");
    const Rank rank{in.number<std::int64_t>()};
    const std::string host = in.text();
    if (!is_host_name(host))
      throw Error(ErrorCode::kCorruptData, "a connection began with what is no name of a host");
    const auto worker_nonce = read_array<32>(in);
    in.finish();
    const Nonce nonce = random_nonce();
    ByteWriter challenge;
    for (const std::byte b : nonce) challenge.number(static_cast<std::uint8_t>(b));
    for (const std::byte b :
         make_proof(config.secret, Role::kCoordinator, worker_nonce, nonce, rank.value)) {
      challenge.number(static_cast<std::uint8_t>(b));
    }
    channel.post(MessageType::kChallenge, challenge.take());
    const Frame answer = co_await channel.read();
    ByteReader proof_in(answer.payload, "proof");
    const auto proof = read_array<32>(proof_in);
    proof_in.finish();
    if (answer.header.type != MessageType::kProof ||
        !proofs_equal(proof,
                      make_proof(config.secret, Role::kWorker, worker_nonce, nonce, rank.value))) {
      throw Error(ErrorCode::kPeerFailed,
                  fmt::format("somebody on {} does not know this job's secret", host));
    }
    const std::lock_guard lock(shared->mutex);
    const auto peer = shared->peers.find(rank);
    if (peer == shared->peers.end() || peer->second.channel) {
      throw Error(
          ErrorCode::kPeerFailed,
          fmt::format("rank {} on {} is not expected, or is there already", rank.value, host));
    }
    peer->second.status.host = host;
    co_return rank;
  }

  void admit(Rank rank, const std::shared_ptr<TcpChannel>& channel) {
    channel->welcome();
    channel->post(MessageType::kWelcome, {});
    const std::lock_guard lock(shared->mutex);
    Peer& peer = shared->peers.at(rank);
    peer.channel = channel;
    peer.status.connected = true;
    peer.last_heard = Clock::now();
    shared->changed.notify_all();
    std::erase_if(strangers, [&](const auto& stranger) { return stranger.lock() == channel; });
    const bool all_there = std::all_of(shared->peers.begin(), shared->peers.end(),
                                       [](const auto& p) { return p.second.channel != nullptr; });
    if (!all_there) return;
    // Nobody else is expected: whoever comes now finds no open port.
    boost::system::error_code ignored;
    acceptor.close(ignored);
    for (const auto& stranger : strangers) {
      if (const auto other = stranger.lock()) other->close();
    }
    strangers.clear();
  }

  asio::awaitable<void> read_all(Rank rank, TcpChannel& channel) {
    for (;;) {
      const Frame frame = co_await channel.read();
      const std::lock_guard lock(shared->mutex);
      Peer& peer = shared->peers.at(rank);
      peer.last_heard = Clock::now();
      if (frame.header.type == MessageType::kHeartbeat) {
        Heartbeat heartbeat = decode_heartbeat(frame.payload);
        peer.status.phase = heartbeat.phase;
        if (heartbeat.report) peer.status.report = std::move(heartbeat.report);
      } else if (frame.header.type == MessageType::kResult) {
        peer.results.push_back(decode_result(frame.payload));
        peer.n_unanswered -= 1;
        shared->changed.notify_all();
      } else if (frame.header.type == MessageType::kStop) {
        if (config.on_stop) config.on_stop();
      } else {
        throw Error(ErrorCode::kCorruptData,
                    "a worker sent a message that only the coordinator sends");
      }
    }
  }

  // Tells a worker that the coordinator is there; declares a silent one dead.
  asio::awaitable<void> watch(Rank rank, std::shared_ptr<TcpChannel> channel) {
    asio::steady_timer timer(context);
    while (!channel->closed()) {
      channel->post(MessageType::kAlive,
                    encode(config.board != nullptr ? config.board->read() : PhaseReport{}));
      const Clock::time_point before = Clock::now();
      timer.expires_after(config.times.heartbeat_period);
      co_await timer.async_wait(asio::use_awaitable);
      Clock::time_point last_heard;
      {
        const std::lock_guard lock(shared->mutex);
        if (shared->shutting_down) co_return;
        Peer& peer = shared->peers.at(rank);
        peer.last_heard += time_held_up(config.times, Clock::now() - before);
        if (peer.is_free_to_go()) continue;  // its silence is nobody's loss
        last_heard = peer.last_heard;
      }
      const auto silence = Clock::now() - last_heard;
      if (silence > config.times.dead_after && !channel->closed()) {
        shared->fail(
            rank,
            fmt::format("rank {} has not been heard of for {} s; it is taken for dead", rank.value,
                        std::chrono::duration_cast<std::chrono::seconds>(silence).count()));
        channel->close();
      }
    }
  }
};

namespace {

class TcpLink final : public Link {
 public:
  TcpLink(asio::io_context& context, std::shared_ptr<Shared> shared, Rank rank)
      : context_(context), shared_(std::move(shared)), rank_(rank) {}

  void send(StepCommand command) override {
    {
      const std::lock_guard lock(shared_->mutex);
      throw_if_failed();
      Peer& peer = shared_->peers.at(rank_);
      peer.n_unanswered += 1;
      if (std::holds_alternative<Shutdown>(command)) peer.may_go = MayGo::kWhenAllIsAnswered;
    }
    asio::post(context_, [shared = shared_, rank = rank_, bytes = encode(command)] {
      const auto& channel = shared->peers.at(rank).channel;
      if (channel) channel->post(MessageType::kCommand, bytes);
    });
  }

  StepResult receive(Deadline deadline) override {
    std::unique_lock lock(shared_->mutex);
    Peer& peer = shared_->peers.at(rank_);
    const bool woken = shared_->changed.wait_until(lock, deadline, [&] {
      return !peer.results.empty() || !shared_->failure.empty() || gone(peer);
    });
    throw_if_failed();
    if (woken && peer.results.empty())
      throw Error(ErrorCode::kPeerFailed, fmt::format("rank {} has shut down", rank_.value));
    if (!woken) throw Error(ErrorCode::kTimeout, describe_hang(shared_->statuses_locked()));
    StepResult result = std::move(peer.results.front());
    peer.results.pop_front();
    return result;
  }

 private:
  static bool gone(const Peer& peer) { return peer.is_free_to_go() && peer.gone; }
  void throw_if_failed() const {
    if (!shared_->failure.empty()) throw Error(ErrorCode::kPeerFailed, shared_->failure);
  }
  asio::io_context& context_;
  std::shared_ptr<Shared> shared_;
  Rank rank_;
};

}  // namespace

ControlServer::ControlServer(const Config& config) : impl_(std::make_unique<Impl>(config)) {}
ControlServer::~ControlServer() = default;

std::uint16_t ControlServer::port() const { return impl_->port; }

void ControlServer::wait_for_workers(Deadline deadline) {
  Shared& shared = *impl_->shared;
  std::unique_lock lock(shared.mutex);
  const auto all_there = [&] {
    return std::all_of(shared.peers.begin(), shared.peers.end(),
                       [](const auto& p) { return p.second.status.connected; });
  };
  shared.changed.wait_until(lock, deadline, [&] { return all_there() || !shared.failure.empty(); });
  if (!shared.failure.empty()) throw Error(ErrorCode::kPeerFailed, shared.failure);
  if (all_there()) return;
  std::vector<std::int64_t> missing;
  for (const auto& [rank, peer] : shared.peers) {
    if (!peer.status.connected) missing.push_back(rank.value);
  }
  throw Error(ErrorCode::kTimeout,
              fmt::format("{} of {} workers did not connect to the coordinator in time: ranks {}; "
                          "can their nodes reach {}:{}?",
                          missing.size(), shared.peers.size(), fmt::join(missing, ", "),
                          impl_->config.bind_address, impl_->port));
}

std::unique_ptr<Link> ControlServer::link(Rank rank) {
  require(rank.value >= 0 && rank.value < impl_->config.n_workers,
          fmt::format("there is no rank {}", rank.value));
  {
    const std::lock_guard lock(impl_->shared->mutex);
    impl_->shared->peers.at(rank).expect(rank);
  }
  return std::make_unique<TcpLink>(impl_->context, impl_->shared, rank);
}

std::vector<WorkerStatus> ControlServer::statuses() const {
  const std::lock_guard lock(impl_->shared->mutex);
  return impl_->shared->statuses_locked();
}

void ControlServer::expect_workers() {
  const std::lock_guard lock(impl_->shared->mutex);
  for (auto& [rank, peer] : impl_->shared->peers) peer.expect(rank);
}

void ControlServer::let_workers_go() {
  {
    const std::lock_guard lock(impl_->shared->mutex);
    for (auto& [rank, peer] : impl_->shared->peers) peer.may_go = MayGo::kAtOnce;
  }
  asio::post(impl_->context, [shared = impl_->shared] {
    for (auto& [rank, peer] : shared->peers) {
      if (peer.channel && !peer.channel->closed()) peer.channel->post(MessageType::kMayGo, {});
    }
  });
}

void ControlServer::abort_workers() {
  asio::post(impl_->context, [shared = impl_->shared] {
    for (auto& [rank, peer] : shared->peers) {
      if (peer.channel) peer.channel->post(MessageType::kAbort, {});
    }
  });
}

}  // namespace longhaul
