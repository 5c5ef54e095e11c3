// One transfer that has been started: a handle to test or wait for it.
#pragma once
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/comm/traffic.h"

namespace longhaul {

class Communicator;

// Returned by Communicator::start_send and start_receive. The buffer must stay alive, and (for a
// receive) untouched, until the request is complete. Move-only; belongs to the communicator's
// thread and must not outlive the communicator. Destroying a request that is not complete
// withdraws it as far as possible and breaks the communicator: unwinding is safe, going on is not.
class Transfer {
 public:
  Transfer() = default;  // complete
  Transfer(Transfer&& other) noexcept { *this = std::move(other); }
  Transfer& operator=(Transfer&& other) noexcept;
  ~Transfer() { drop(); }

  // Local. True once complete; then the buffer may be used again. Lets transfers advance; throws
  // like wait().
  bool test();
  // Blocks until complete. Throws kTimeout at the deadline (default: the communicator's),
  // kPeerFailed when a rank has aborted, kInvalidArgument when the peer sent another number of
  // bytes than this receive expects. After a throw the communicator is broken.
  void wait();
  void wait(Deadline deadline);
  bool pending() const { return communicator_ != nullptr; }

 private:
  friend class Communicator;
  enum class Direction : bool { kSend, kReceive };
  void drop() noexcept;

  Communicator* communicator_ = nullptr;  // null: complete
  int ticket_ = -1;
  int peer_ = -1;
  Tag tag_;
  std::size_t n_bytes_ = 0;
  Direction direction_ = Direction::kSend;
};

// What a rank sends and receives in an exchange (Communicator::start_exchange).
struct Outgoing {
  int to = 0;
  std::span<const std::byte> data;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> buffer;
};
// Its transfers, in the order in which they were given.
struct Exchange {
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;
  void wait() {
    for (Transfer& transfer : receives) transfer.wait();
    for (Transfer& transfer : sends) transfer.wait();
  }
};

// Both halves of a shift round the ring, while compute goes on.
struct RingTransfer {
  Transfer receive;
  Transfer send;
  // Blocks until the incoming buffer is filled and the outgoing one may be used again.
  void wait() {
    receive.wait();
    send.wait();
  }
  bool test() {
    const bool received = receive.test();
    return send.test() && received;
  }
};

}  // namespace longhaul
