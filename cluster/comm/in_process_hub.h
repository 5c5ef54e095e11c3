// The meeting place of the ranks of one process: matches sends with receives. Internal to
// in_process*.cc.
//
// Whoever comes second to a match copies, straight from the sender's buffer into the receiver's; so
// a started transfer needs no further calls to complete. A short message that finds no receive
// waiting is kept by the hub in a copy of its own, and its send is complete at once.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cluster/comm/verdict.h"

namespace longhaul {

// One posted send or receive. `state` says who may touch the rest: the poster's buffer may be
// reached by the other side while kCopying only.
struct InProcessTransfer {
  enum class State { kPosted, kCopying, kDone, kRefused };
  std::atomic<State> state = State::kPosted;
  int owner = 0;                      // job rank that posted it
  std::uint64_t channel = 0;          // where it is queued while kPosted
  std::span<const std::byte> source;  // of a send
  std::span<std::byte> target;        // of a receive
  std::vector<std::byte> kept;        // a short message's own copy
  std::size_t sent_bytes = 0;         // kRefused: what the sender sent instead
  bool awaited = false;               // its owner sleeps until it has ended
  bool ended() const {
    const State now = state.load(std::memory_order_acquire);
    return now == State::kDone || now == State::kRefused;
  }
};

class InProcessHub {
 public:
  explicit InProcessHub(int n_ranks);
  int size() const { return n_ranks_; }

  // `channel` names (context, from, to, tag); transfers of a channel match in order.
  std::shared_ptr<InProcessTransfer> post_send(std::uint64_t channel, int owner,
                                               std::span<const std::byte> data);
  std::shared_ptr<InProcessTransfer> post_receive(std::uint64_t channel, int owner,
                                                  std::span<std::byte> buffer);
  // Blocks until the transfer has ended or a rank has aborted (true), or the deadline (false).
  bool wait(InProcessTransfer& transfer, Deadline deadline);
  // Takes a transfer back; blocks while the other side copies.
  void withdraw(const std::shared_ptr<InProcessTransfer>& transfer);

  const std::shared_ptr<FailureFlag>& aborted() const { return aborted_; }
  // Ends all waits; the flag has been raised.
  void wake_all();

 private:
  struct Channel {
    std::deque<std::shared_ptr<InProcessTransfer>> sends;
    std::deque<std::shared_ptr<InProcessTransfer>> receives;
  };
  std::condition_variable& changed(const InProcessTransfer& transfer);
  void copy(InProcessTransfer& send, InProcessTransfer& receive,
            std::unique_lock<std::mutex>& lock);

  const int n_ranks_;
  const bool spin_;  // a core for every rank: look a little before sleeping
  std::shared_ptr<FailureFlag> aborted_ = std::make_shared<FailureFlag>();
  std::mutex mutex_;  // guards channels_, `awaited` and all changes of a transfer's state
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::vector<std::condition_variable> changed_;  // [n_ranks]: what that rank awaits has ended
};

}  // namespace longhaul
