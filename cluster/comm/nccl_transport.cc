#include "cluster/comm/nccl_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "cluster/comm/nccl_channel.h"

namespace longhaul {
namespace {

// How long a rank that leaves waits for the others to leave their communicators as well.
constexpr std::chrono::seconds kFinishDeadline{10};

constexpr std::uint32_t kOfferMark = 0x4c484f46;
// Sent under the transfer's own tag, so that it matches the receive as any message would.
struct Offer {
  std::uint32_t mark = kOfferMark;
  std::uint32_t reserved = 0;
  std::int64_t number = 0;
  std::uint64_t n_bytes = 0;
};
struct Answer {
  std::int64_t number = 0;
  NcclId id{};  // of the pair's communicator; counts with the first answer
};
static_assert(sizeof(NcclId) == NcclTransport::kIdBytes);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

constexpr Tag kAnswerTag{Traffic::kHandshake};  // one, so that answers keep one order

}  // namespace

// On the heap from start to end: host transfers refer to `offer` and `answer`.
struct NcclTransfer {
  enum class Stage { kOffered, kWaitsForOffer, kQueued };
  Communicator* host = nullptr;
  int peer = 0;
  Tag tag;
  std::span<std::byte> data;  // GPU memory; only read of a send
  Stage stage = Stage::kQueued;
  Offer offer;
  Answer answer;  // of a receive
  Transfer offer_transfer;
  Transfer answer_transfer;
  std::shared_ptr<NcclLaunch> launch = std::make_shared<NcclLaunch>();
  std::optional<Error> refusal;  // thrown when somebody asks how it went

  std::string what(const char* direction) const {
    return fmt::format("rank {}: {} ({} bytes) {} rank {}", host->job_rank(), name_of(tag.traffic),
                       data.size(), direction, host->job_rank_of(peer));
  }
};

struct NcclTransport::Channels {
  // From a rank to another one of a host communicator; -1, -1: among all of its ranks.
  using Key = std::tuple<const Communicator*, int, int>;
  std::map<Key, std::unique_ptr<NcclChannel>> all;
  std::vector<std::unique_ptr<NcclChannel>> leaving;  // of host communicators that are gone

  // Sends to one peer that wait for their answers, and as many receives for answers: whichever send
  // an answer is for, it arrives in the first of these.
  struct Slot {
    Answer answer;
    Transfer transfer;
  };
  struct Asking {
    std::vector<std::shared_ptr<NcclTransfer>> sends;
    std::deque<std::unique_ptr<Slot>> slots;
  };
  std::map<std::pair<Communicator*, int>, Asking> asking;  // by host communicator and peer
};

std::unique_ptr<NcclTransport> NcclTransport::open(cuda::Stream& compute,
                                                   const std::string& library, std::string& why) {
  auto nccl = open_nccl(library, why);
  if (!nccl) return nullptr;
  return std::unique_ptr<NcclTransport>(new NcclTransport(compute, std::move(nccl)));
}

NcclTransport::NcclTransport(cuda::Stream& compute, std::shared_ptr<const NcclLibrary> nccl)
    : compute_(compute), nccl_(std::move(nccl)), channels_(std::make_unique<Channels>()) {}

NcclTransport::~NcclTransport() {
  for (auto& [key, channel] : channels_->all) {
    channel->start_finish();
    channels_->leaving.push_back(std::move(channel));
  }
  const Deadline deadline = deadline_in(kFinishDeadline);
  for (const auto& channel : channels_->leaving) {
    while (!channel->finished() && Clock::now() < deadline) std::this_thread::yield();
  }
}

int NcclTransport::version() const { return nccl_->version; }

std::shared_ptr<NcclTransfer> NcclTransport::send(Communicator& host, int to, Tag tag,
                                                  std::span<const std::byte> data) {
  auto send = std::make_shared<NcclTransfer>();
  send->host = &host;
  send->peer = to;
  send->tag = tag;
  send->data = {const_cast<std::byte*>(data.data()), data.size()};
  send->stage = NcclTransfer::Stage::kOffered;
  send->offer.number = n_offers_++;
  send->offer.n_bytes = data.size();
  send->launch->what = send->what("to");
  send->launch->start.record(compute_);
  send->launch->queue = [nccl = nccl_, data](ncclComm_t comm, cudaStream_t stream) {
    return nccl->Send(data.data(), data.size(), ncclInt8, /*peer=*/1, comm, stream);
  };
  auto& asking = channels_->asking[{&host, to}];
  auto slot = std::make_unique<Channels::Slot>();
  slot->transfer = host.start_receive(to, kAnswerTag, writable_bytes_of(slot->answer));
  asking.slots.push_back(std::move(slot));
  asking.sends.push_back(send);
  send->offer_transfer = host.start_send(to, tag, bytes_of(send->offer));
  active_.push_back(send);
  return send;
}

std::shared_ptr<NcclTransfer> NcclTransport::receive(Communicator& host, int from, Tag tag,
                                                     std::span<std::byte> buffer) {
  auto receive = std::make_shared<NcclTransfer>();
  receive->host = &host;
  receive->peer = from;
  receive->tag = tag;
  receive->data = buffer;
  receive->stage = NcclTransfer::Stage::kWaitsForOffer;
  receive->launch->what = receive->what("from");
  receive->launch->start.record(compute_);
  receive->launch->queue = [nccl = nccl_, buffer](ncclComm_t comm, cudaStream_t stream) {
    return nccl->Recv(buffer.data(), buffer.size(), ncclInt8, /*peer=*/0, comm, stream);
  };
  receive->offer_transfer = host.start_receive(from, tag, writable_bytes_of(receive->offer));
  active_.push_back(receive);
  return receive;
}

// An offer has come: answers it, and queues the receive.
void NcclTransport::advance(const std::shared_ptr<NcclTransfer>& transfer) {
  NcclTransfer& t = *transfer;
  if (t.stage != NcclTransfer::Stage::kWaitsForOffer || !t.offer_transfer.test()) return;
  if (t.offer.mark != kOfferMark || t.offer.n_bytes != t.data.size()) {
    t.refusal = Error(ErrorCode::kInvalidArgument,
                      fmt::format("rank {}: expected a message of {} bytes, but {} were sent",
                                  t.host->job_rank(), t.data.size(), t.offer.n_bytes));
    t.stage = NcclTransfer::Stage::kQueued;
    return;
  }
  t.answer.number = t.offer.number;
  auto& channel = channels_->all[{t.host, t.peer, t.host->rank()}];
  if (!channel) {
    make_id(writable_bytes_of(t.answer.id));
    channel = std::make_unique<NcclChannel>(nccl_, 2, /*rank=*/1, t.answer.id);
  }
  t.answer_transfer = t.host->start_send(t.peer, kAnswerTag, bytes_of(t.answer));
  channel->add(t.launch);
  t.stage = NcclTransfer::Stage::kQueued;
}

// Answers come in the order in which the peer queued its receives.
void NcclTransport::take_answers() {
  for (auto& [link, asking] : channels_->asking) {
    const auto& [host, peer] = link;
    while (!asking.slots.empty() && asking.slots.front()->transfer.test()) {
      const Answer answer = asking.slots.front()->answer;
      asking.slots.pop_front();
      const auto asked =
          std::find_if(asking.sends.begin(), asking.sends.end(),
                       [&](const auto& send) { return send->offer.number == answer.number; });
      if (asked == asking.sends.end()) {
        throw Error(ErrorCode::kInternal,
                    fmt::format("rank {}: an answer to no offer, from rank {}", host->job_rank(),
                                host->job_rank_of(peer)));
      }
      auto& channel = channels_->all[{host, host->rank(), peer}];
      if (!channel) channel = std::make_unique<NcclChannel>(nccl_, 2, /*rank=*/0, answer.id);
      channel->add((*asked)->launch);
      (*asked)->stage = NcclTransfer::Stage::kQueued;
      asking.sends.erase(asked);
    }
  }
}

void NcclTransport::poll() {
  if (active_.empty()) return;
  for (const auto& transfer : active_) advance(transfer);
  take_answers();
  for (auto& [key, channel] : channels_->all) channel->poll();
  std::erase_if(active_,
                [](const auto& transfer) { return transfer->refusal || is_done(*transfer); });
}

bool NcclTransport::is_done(const NcclTransfer& transfer) {
  if (transfer.refusal) throw Error(*transfer.refusal);
  // Its buffers for the handshake may still be in use.
  const auto over = [](const Transfer& t) {
    return !t.pending() || const_cast<Transfer&>(t).test();
  };
  return transfer.launch->done() && over(transfer.offer_transfer) && over(transfer.answer_transfer);
}

bool NcclTransport::needs_id(const Communicator& host) const {
  return !channels_->all.contains({&host, -1, -1});
}

void NcclTransport::make_id(std::span<std::byte> id) {
  NcclId made;
  const ncclResult_t result = nccl_->GetUniqueId(&made);
  if (result != ncclSuccess) {
    throw Error(ErrorCode::kNccl,
                fmt::format("ncclGetUniqueId: {}", nccl_->GetErrorString(result)));
  }
  std::memcpy(id.data(), &made, sizeof made);
}

void NcclTransport::join(const Communicator& host, std::span<const std::byte> id) {
  NcclId given;
  std::memcpy(&given, id.data(), sizeof given);
  channels_->all[{&host, -1, -1}] =
      std::make_unique<NcclChannel>(nccl_, host.size(), host.rank(), given);
}

std::shared_ptr<NcclTransfer> NcclTransport::exchange(
    const Communicator& host, std::span<const std::span<const std::byte>> out,
    std::span<const std::span<std::byte>> in) {
  auto transfer = std::make_shared<NcclTransfer>();
  transfer->launch->what =
      fmt::format("rank {}: a collective of {} ranks", host.job_rank(), host.size());
  transfer->launch->start.record(compute_);
  transfer->launch->queue = [nccl = nccl_, self = static_cast<std::size_t>(host.rank()),
                             out = std::vector(out.begin(), out.end()),
                             in = std::vector(in.begin(), in.end())](ncclComm_t comm,
                                                                     cudaStream_t stream) {
    ncclResult_t result = nccl->GroupStart();
    const auto queue = [&](auto call, auto span, std::size_t peer) {
      if (span.empty() || (result != ncclSuccess && result != ncclInProgress)) return;
      result = call(span.data(), span.size(), ncclInt8, static_cast<int>(peer), comm, stream);
    };
    for (std::size_t r = 0; r < out.size(); ++r) {
      if (r == self) continue;
      queue(nccl->Send, out[r], r);
      queue(nccl->Recv, in[r], r);
    }
    const ncclResult_t end = nccl->GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? end : result;
  };
  channels_->all.at({&host, -1, -1})->add(transfer->launch);
  active_.push_back(transfer);
  return transfer;
}

void NcclTransport::abort() noexcept {
  for (auto& [key, channel] : channels_->all) channel->abort();
  for (const auto& channel : channels_->leaving) channel->abort();
  channels_->asking.clear();
  active_.clear();
}

void NcclTransport::forget(const Communicator& host) noexcept {
  for (auto& [key, channel] : channels_->all) {
    if (std::get<0>(key) != &host) continue;
    channel->start_finish();
    channels_->leaving.push_back(std::move(channel));
  }
  std::erase_if(channels_->all, [](const auto& entry) { return entry.second == nullptr; });
  std::erase_if(channels_->asking, [&](const auto& entry) { return entry.first.first == &host; });
  std::erase_if(channels_->leaving, [](const auto& channel) { return channel->finished(); });
}

}  // namespace longhaul
