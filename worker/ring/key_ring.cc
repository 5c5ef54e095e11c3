#include "worker/ring/key_ring.h"

#include <utility>

namespace longhaul {

// Sends on what is visiting at `hop` and receives the next train.
void KeyRing::shift(std::int64_t hop) {
  const Tag tag{Traffic::kKeys};
  const std::size_t n_in = bytes_of(train_at(hop + 1));
  const std::size_t n_out = bytes_of(train_at(hop));
  shift_begin_ = Clock::now();
  shift_hop_ = hop;
  is_moving_ = n_in + n_out > 0;
  std::byte* in = buffers_[static_cast<std::size_t>(hop % 2)].reserve(context_.stream, n_in);
  const Incoming from{context_.comm.previous(), {in, n_in}};
  const Outgoing to{context_.comm.next(), {visiting_, n_out}};
  Exchange moving = context_.comm.start_exchange(tag, {&from, 1}, {&to, 1});
  receive_ = std::move(moving.receives.front());
  send_ = std::move(moving.sends.front());
}

void KeyRing::note_arrival() {
  if (is_moving_) context_.add_span(TraceLane::kTransfer, "keys", shift_begin_, shift_hop_);
  is_moving_ = false;
}

void KeyRing::progress() {
  context_.comm.progress();
  if (is_moving_ && receive_.test() && send_.test()) note_arrival();
}

void KeyRing::start(const OfRing<Train>& trains, const std::byte* own) {
  trains_ = &trains;
  visiting_ = own;
  if (context_.comm.size() > 1) shift(0);
}

void KeyRing::run(const Visit& visit) {
  const std::int64_t n_hops = context_.comm.size() - 1;
  for (std::int64_t hop = 0;; ++hop) {
    context_.set_hop(hop);
    visit(train_at(hop), visiting_);
    if (hop == n_hops) break;
    context_.wait(receive_, context_.comm.previous());
    context_.wait(send_, context_.comm.next());
    note_arrival();
    visiting_ = buffers_[static_cast<std::size_t>(hop % 2)].data();
    if (hop + 1 < n_hops) shift(hop + 1);
  }
  context_.set_hop(-1);
}

}  // namespace longhaul
