#include "cluster/comm/in_process_hub.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace longhaul {
namespace {

using State = InProcessTransfer::State;

// Up to here a send that comes first is copied into the hub: about the size at which the copy costs
// as much as waking a sleeping thread.
constexpr std::size_t kKeptBytes = 16 * 1024;
// How long a waiter looks before it sleeps: about what falling asleep and waking costs.
constexpr std::chrono::microseconds kSpin{20};

}  // namespace

InProcessHub::InProcessHub(int n_ranks)
    : n_ranks_(n_ranks),
      spin_(static_cast<unsigned>(n_ranks) <= std::thread::hardware_concurrency()),
      changed_(static_cast<std::size_t>(n_ranks)) {}

std::shared_ptr<InProcessTransfer> InProcessHub::post_send(std::uint64_t channel, int owner,
                                                           std::span<const std::byte> data) {
  auto send = std::make_shared<InProcessTransfer>();
  send->owner = owner;
  send->channel = channel;
  send->source = data;
  std::unique_lock lock(mutex_);
  Channel& queue = channels_[channel];
  if (!queue.receives.empty()) {
    const auto receive = std::move(queue.receives.front());
    queue.receives.pop_front();
    copy(*send, *receive, lock);
    return send;
  }
  if (data.size() > kKeptBytes) {
    queue.sends.push_back(send);
    return send;
  }
  const auto kept = std::make_shared<InProcessTransfer>();
  kept->owner = owner;
  kept->channel = channel;
  kept->kept.assign(data.begin(), data.end());
  kept->source = kept->kept;
  queue.sends.push_back(kept);
  send->state.store(State::kDone, std::memory_order_release);
  return send;
}

std::shared_ptr<InProcessTransfer> InProcessHub::post_receive(std::uint64_t channel, int owner,
                                                              std::span<std::byte> buffer) {
  auto receive = std::make_shared<InProcessTransfer>();
  receive->owner = owner;
  receive->channel = channel;
  receive->target = buffer;
  std::unique_lock lock(mutex_);
  Channel& queue = channels_[channel];
  if (queue.sends.empty()) {
    queue.receives.push_back(receive);
    return receive;
  }
  const auto send = std::move(queue.sends.front());
  queue.sends.pop_front();
  copy(*send, *receive, lock);
  return receive;
}

std::condition_variable& InProcessHub::changed(const InProcessTransfer& transfer) {
  return changed_[static_cast<std::size_t>(transfer.owner)];
}

// Both transfers have left their queues. Copies without the lock; kCopying keeps the other side's
// buffer alive (see withdraw). Wakes without it too: who wakes needs it at once.
void InProcessHub::copy(InProcessTransfer& send, InProcessTransfer& receive,
                        std::unique_lock<std::mutex>& lock) {
  const std::size_t n_bytes = send.source.size();
  const bool fits = n_bytes == receive.target.size();
  if (fits) {
    send.state.store(State::kCopying, std::memory_order_relaxed);
    receive.state.store(State::kCopying, std::memory_order_relaxed);
    lock.unlock();
    if (n_bytes > 0) std::memcpy(receive.target.data(), send.source.data(), n_bytes);
    lock.lock();
  } else {
    receive.sent_bytes = n_bytes;
  }
  receive.state.store(fits ? State::kDone : State::kRefused, std::memory_order_release);
  send.state.store(State::kDone, std::memory_order_release);
  const bool receiver_sleeps = receive.awaited;
  const bool sender_sleeps = send.awaited;
  lock.unlock();
  if (receiver_sleeps) changed(receive).notify_one();
  if (sender_sleeps) changed(send).notify_one();
}

bool InProcessHub::wait(InProcessTransfer& transfer, Deadline deadline) {
  const auto over = [&] { return transfer.ended() || aborted_->raised(); };
  if (over()) return true;
  if (spin_) {
    const Deadline spin_end = Clock::now() + kSpin;
    while (Clock::now() < spin_end) {
      for (int look = 0; look < 32; ++look) {
        if (over()) return true;
      }
      std::this_thread::yield();  // the peer may be waiting for this very core
    }
  }
  std::unique_lock lock(mutex_);
  transfer.awaited = true;
  return changed(transfer).wait_until(lock, deadline, over);
}

void InProcessHub::withdraw(const std::shared_ptr<InProcessTransfer>& transfer) {
  std::unique_lock lock(mutex_);
  if (transfer->state.load() == State::kPosted) {
    Channel& queue = channels_[transfer->channel];
    std::erase(queue.sends, transfer);
    std::erase(queue.receives, transfer);
    return;
  }
  transfer->awaited = true;
  changed(*transfer).wait(lock, [&] { return transfer->ended(); });
}

void InProcessHub::wake_all() {
  const std::lock_guard lock(mutex_);  // a waiter that has looked at the flag is asleep by now
  for (std::condition_variable& changed : changed_) changed.notify_all();
}

}  // namespace longhaul
