#include "cluster/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace longhaul {

// --- Transfer ---

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this == &other) return *this;
  drop();
  communicator_ = std::exchange(other.communicator_, nullptr);
  ticket_ = other.ticket_;
  peer_ = other.peer_;
  tag_ = other.tag_;
  n_bytes_ = other.n_bytes_;
  direction_ = other.direction_;
  return *this;
}

bool Transfer::test() { return !pending() || communicator_->test_for(*this); }

void Transfer::wait() {
  if (pending()) wait(communicator_->default_deadline_from_now());
}

void Transfer::wait(Deadline deadline) {
  if (pending()) communicator_->wait_for(*this, deadline);
}

void Transfer::drop() noexcept {
  if (pending()) communicator_->drop(*this);
}

// --- Communicator: transfers ---

Communicator::Communicator(Group group, std::shared_ptr<CommunicatorFamily> family)
    : group_(std::move(group)), family_(std::move(family)) {}

void Communicator::require_peer(int peer, Tag tag) const {
  if (peer < 0 || peer >= size()) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {}: there is no rank {} to exchange {} with; ranks are 0 to {}",
                            rank(), peer, name_of(tag.traffic), size() - 1));
  }
  if (tag.stream < 0 || tag.stream >= kStreams) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {}: stream {} of {} is not within 0 to {}", rank(), tag.stream,
                            name_of(tag.traffic), kStreams - 1));
  }
}

Transfer Communicator::started(Transfer::Direction direction, int peer, Tag tag,
                               std::size_t n_bytes, int ticket) {
  Transfer request;
  request.communicator_ = this;
  request.ticket_ = ticket;
  request.peer_ = peer;
  request.tag_ = tag;
  request.n_bytes_ = n_bytes;
  request.direction_ = direction;
  return request;
}

Transfer Communicator::start_send(int to, Tag tag, std::span<const std::byte> data) {
  require_peer(to, tag);
  throw_if_broken();
  const int ticket = post_send(to, tag, data);
  count_message(to, tag, data.size());
  return started(Transfer::Direction::kSend, to, tag, data.size(), ticket);
}

Transfer Communicator::start_receive(int from, Tag tag, std::span<std::byte> buffer) {
  require_peer(from, tag);
  throw_if_broken();
  const int ticket = post_receive(from, tag, buffer);
  return started(Transfer::Direction::kReceive, from, tag, buffer.size(), ticket);
}

void Communicator::count_message(int to, Tag tag, std::size_t n_bytes) {
  if (to == rank()) return;
  TrafficCount& count = traffic_[tag.traffic];
  ++count.messages;
  count.bytes += static_cast<std::int64_t>(n_bytes);
}

Exchange Communicator::start_exchange(Tag tag, std::span<const Incoming> in,
                                      std::span<const Outgoing> out) {
  throw_if_broken();
  std::vector<Incoming> receives;
  std::vector<Outgoing> sends;
  for (const Incoming& part : in) {
    require_peer(part.from, tag);
    if (!part.buffer.empty()) receives.push_back(part);
  }
  for (const Outgoing& part : out) {
    require_peer(part.to, tag);
    if (part.data.empty()) continue;
    sends.push_back(part);
    count_message(part.to, tag, part.data.size());
  }
  const std::vector<int> tickets = post_exchange(tag, receives, sends);
  auto ticket = tickets.begin();
  Exchange exchange;
  for (const Incoming& part : in) {
    exchange.receives.push_back(part.buffer.empty()
                                    ? Transfer{}
                                    : started(Transfer::Direction::kReceive, part.from, tag,
                                              part.buffer.size(), *ticket++));
  }
  for (const Outgoing& part : out) {
    exchange.sends.push_back(part.data.empty() ? Transfer{}
                                               : started(Transfer::Direction::kSend, part.to, tag,
                                                         part.data.size(), *ticket++));
  }
  return exchange;
}

std::vector<int> Communicator::post_exchange(Tag tag, std::span<const Incoming> in,
                                             std::span<const Outgoing> out) {
  std::vector<int> tickets;
  for (const Incoming& part : in) tickets.push_back(post_receive(part.from, tag, part.buffer));
  for (const Outgoing& part : out) tickets.push_back(post_send(part.to, tag, part.data));
  return tickets;
}

// "keys (stream 1, 4096 bytes) from rank 2"; a group's ranks also by their number in the job.
std::string Communicator::describe(const Transfer& request) const {
  const bool receives = request.direction_ == Transfer::Direction::kReceive;
  const int peer_in_job = job_rank_of(request.peer_);
  return fmt::format(
      "{}{} ({} bytes) {} rank {}{}", name_of(request.tag_.traffic),
      request.tag_.stream == 0 ? "" : fmt::format(" stream {}", request.tag_.stream),
      request.n_bytes_, receives ? "from" : "to", request.peer_,
      peer_in_job == request.peer_ ? "" : fmt::format(" of the group (job rank {})", peer_in_job));
}

void Communicator::wait_for(Transfer& request, Deadline deadline) {
  throw_if_broken();
  const Stopwatch watch;
  try {
    if (wait_ticket(request.ticket_, deadline)) {
      request.communicator_ = nullptr;
      return;
    }
  } catch (const Error& error) {
    mark_broken(error.what());
    throw;
  }
  const std::string message = fmt::format("rank {}: waited {:.1f} s for {}, then gave up",
                                          job_rank(), watch.seconds(), describe(request));
  mark_broken(message);
  throw Error(ErrorCode::kTimeout, message);
}

bool Communicator::test_for(Transfer& request) {
  throw_if_broken();
  try {
    if (!test_ticket(request.ticket_)) return false;
  } catch (const Error& error) {
    mark_broken(error.what());
    throw;
  }
  request.communicator_ = nullptr;
  return true;
}

void Communicator::drop(Transfer& request) noexcept {
  drop_ticket(request.ticket_);
  request.communicator_ = nullptr;
  try {
    if (!broken()) {
      mark_broken(fmt::format("rank {}: {} was given up before it was complete", job_rank(),
                              describe(request)));
    }
  } catch (...) {  // out of memory while formatting; the communicator must still count as broken
    family_->broken.emplace();
  }
}

// A span as it is; collectives write only to those that callers gave for writing.
Communicator::HostCopy Communicator::host_copy(std::span<const std::byte> data, Use) {
  return {.bytes = {const_cast<std::byte*>(data.data()), data.size()}, .owner = nullptr};
}

void Communicator::put_back(const HostCopy&, std::span<std::byte>) {}

bool Communicator::gather_itself(std::span<const std::byte>,
                                 std::span<const std::span<std::byte>>) {
  return false;
}

bool Communicator::sum_itself(std::span<float>, const AddParts*) { return false; }

// --- Communicator: failure ---

void Communicator::mark_broken(const std::string& reason) {
  if (!family_->broken) family_->broken = reason;
}

void Communicator::throw_if_broken() {
  if (family_->aborted->raised()) [[unlikely]] {
    const Verdict verdict = family_->aborted->verdict();
    tell_peers(verdict);  // another thread may have raised it: this one leaves, but not silently
    throw Error(ErrorCode::kPeerFailed,
                fmt::format("rank {} failed: {}", verdict.rank, verdict.message));
  }
  if (family_->broken) [[unlikely]] {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("the communicator cannot be used after its failure: {}", *family_->broken));
  }
}

void Communicator::abort(ErrorCode code, const std::string& message) noexcept {
  try {
    const Verdict verdict = failed(job_rank(), code, message);
    family_->aborted->raise(verdict);
    tell_peers(verdict);
  } catch (const std::exception& error) {
    LONGHAUL_LOG(kError, kComm, "abort event=failed reason=\"{}\"", error.what());
  }
}

}  // namespace longhaul
