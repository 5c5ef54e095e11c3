#include "cluster/comm/nccl_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/device/step_graph.h"
#include "cluster/comm/copy_engines.h"
#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/nccl_channel.h"

namespace longhaul {
namespace {

// How long a rank that leaves waits for the others to leave their communicators as well.
constexpr std::chrono::seconds kFinishDeadline{10};
// What every rank sends every other one to connect with it.
constexpr std::size_t kGreetingBytes = 16;

static_assert(sizeof(NcclId) == NcclTransport::kIdBytes);

}  // namespace

struct NcclTransfer {
  cuda::Event start;  // behind what compute had to do before
  cuda::Event end;    // of the launch
  CopyEngines* copies = nullptr;
  std::optional<CopyEngines::Ends> copied;
  bool is_followed = false;  // by compute, which waits for the ends
};

struct NcclTransport::Groups {
  // A communicator and how far it is.
  struct Group {
    std::unique_ptr<NcclChannel> channel;
    cuda::Buffer greetings;  // [ranks] sent, then received, then gathered
    int n_greeted = 0;       // calls that connect ranks
    cuda::Event greeted;
    bool is_joined = false;
  };
  std::map<const Communicator*, Group> all;
  std::vector<std::unique_ptr<NcclChannel>> leaving;  // of host communicators that are gone
};

std::unique_ptr<NcclTransport> NcclTransport::open(cuda::Stream& compute,
                                                   const std::string& library, std::string& why) {
  auto nccl = open_nccl(library, why);
  if (!nccl) return nullptr;
  return std::unique_ptr<NcclTransport>(new NcclTransport(compute, std::move(nccl)));
}

NcclTransport::NcclTransport(cuda::Stream& compute, std::shared_ptr<const NcclLibrary> nccl)
    : compute_(compute),
      transfers_(cuda::current_gpu(), cuda::Urgency::kTransfers),
      nccl_(std::move(nccl)),
      groups_(std::make_unique<Groups>()) {}

NcclTransport::~NcclTransport() {
  end_steps();
  for (auto& [host, group] : groups_->all) {
    group.channel->start_finish();
    groups_->leaving.push_back(std::move(group.channel));
  }
  const Deadline deadline = deadline_in(kFinishDeadline);
  for (const auto& channel : groups_->leaving) {
    while (!channel->finished() && Clock::now() < deadline) std::this_thread::yield();
  }
  copies_.reset();
}

void NcclTransport::use(std::unique_ptr<CopyEngines> copies) { copies_ = std::move(copies); }

// Graphs that hold launches of a communicator must go before it does.
void NcclTransport::end_steps() noexcept { compute_.forget_graph(); }

int NcclTransport::version() const { return nccl_->version; }

bool NcclTransport::has(const Communicator& host) const { return groups_->all.contains(&host); }

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
  Groups::Group& group = groups_->all[&host];
  const auto n_ranks = static_cast<std::size_t>(host.size());
  group.greetings = cuda::Buffer(3 * n_ranks * kGreetingBytes);
  group.channel = std::make_unique<NcclChannel>(nccl_, host.size(), host.rank(), given);
}

// Connections are made by the first calls that need them, which wait for the peers' and take memory
// from the GPU: while nothing is under way yet.
bool NcclTransport::is_joined(const Communicator& host) {
  Groups::Group& group = groups_->all.at(&host);
  if (group.is_joined) return true;
  NcclChannel& channel = *group.channel;
  if (!channel.is_ready()) return false;
  const auto n_ranks = static_cast<std::size_t>(host.size());
  std::byte* const sent = group.greetings.data();
  std::byte* const received = sent + n_ranks * kGreetingBytes;
  void* const stream = transfers_.native();
  switch (group.n_greeted++) {
    case 0: {
      NcclGroup all{.channel = &channel, .what = {}, .parts = {}};
      for (int r = 0; r < host.size(); ++r) {
        if (r == host.rank()) continue;
        const std::size_t at = static_cast<std::size_t>(r) * kGreetingBytes;
        all.parts.push_back({r, true, sent + at, kGreetingBytes});
        all.parts.push_back({r, false, received + at, kGreetingBytes});
      }
      channel.call("connecting all ranks", stream,
                   [&](ncclComm_t comm, cudaStream_t queue) { return all.call(comm, queue); });
      return false;
    }
    case 1:
      channel.call("connecting all ranks, to gather", stream,
                   [&](ncclComm_t comm, cudaStream_t queue) {
                     return nccl_->AllGather(sent, received + n_ranks * kGreetingBytes,
                                             kGreetingBytes, ncclInt8, comm, queue);
                   });
      return false;
    case 2:
      group.greeted.record(transfers_);
      return false;
    default:
      return group.is_joined = group.greeted.is_done();
  }
}

std::shared_ptr<NcclTransfer> NcclTransport::exchange(const Communicator& host, std::string what,
                                                      std::span<const Incoming> in,
                                                      std::span<const Outgoing> out) {
  NcclGroup group{
      .channel = groups_->all.at(&host).channel.get(), .what = std::move(what), .parts = {}};
  std::vector<Incoming> copied_in;
  std::vector<Outgoing> copied_out;
  const auto is_copied = [&](int rank) { return copies_ && copies_->reaches(host, rank); };
  for (const Incoming& part : in) {
    if (is_copied(part.from)) {
      copied_in.push_back(part);
    } else {
      group.parts.push_back({part.from, false, part.buffer.data(), part.buffer.size()});
    }
  }
  for (const Outgoing& part : out) {
    if (is_copied(part.to)) {
      copied_out.push_back(part);
    } else {
      group.parts.push_back({part.to, true, part.data.data(), part.data.size()});
    }
  }
  auto transfer = std::make_shared<NcclTransfer>();
  transfer->start.record(compute_);
  if (!copied_in.empty() || !copied_out.empty()) {
    transfer->copies = copies_.get();
    transfer->copied = copies_->queue(host, transfer->start, copied_in, copied_out);
  }
  if (!group.parts.empty()) {
    transfers_.wait_for(transfer->start);
    group.queue(transfers_.native());
    transfer->end.record(transfers_);
  }
  active_.push_back(transfer);
  return transfer;
}

bool NcclTransport::is_done(const NcclTransfer& transfer) {
  if (!transfer.end.is_done()) return false;
  if (!transfer.copied) return true;
  if (!transfer.copied->are_done()) return false;
  transfer.copies->look();
  return true;
}

// Before a collective: what was called before it comes before it. A graph cannot wait for what is
// outside of it, so what is noted is submitted where something is still under way.
void NcclTransport::follow_transfers() {
  while (!active_.empty() && is_done(*active_.front())) active_.pop_front();
  for (const auto& transfer : active_) {
    if (std::exchange(transfer->is_followed, true)) continue;
    compute_.wait_for(transfer->end);
    if (!transfer->copied) continue;
    compute_.wait_for(transfer->copied->out);
    compute_.wait_for(transfer->copied->in);
  }
}

void NcclTransport::gather(const Communicator& host, std::span<const std::byte> mine,
                           std::byte* all) {
  follow_transfers();
  cuda::queue_work(compute_, NcclGather{.channel = groups_->all.at(&host).channel.get(),
                                        .mine = mine.data(),
                                        .all = all,
                                        .n_bytes = mine.size()});
}

void NcclTransport::trade(const Communicator& host, std::span<const std::span<const std::byte>> out,
                          std::span<const std::span<std::byte>> in) {
  NcclGroup group{
      .channel = groups_->all.at(&host).channel.get(),
      .what = fmt::format("rank {}: a collective of {} ranks", host.job_rank(), host.size()),
      .parts = {}};
  for (int r = 0; r < host.size(); ++r) {
    if (r == host.rank()) continue;
    const auto from = in[static_cast<std::size_t>(r)];
    const auto to = out[static_cast<std::size_t>(r)];
    if (!to.empty()) group.parts.push_back({r, true, to.data(), to.size()});
    if (!from.empty()) group.parts.push_back({r, false, from.data(), from.size()});
  }
  follow_transfers();
  if (!group.parts.empty()) cuda::queue_work(compute_, group);
}

void NcclTransport::poll() {
  for (auto& [host, group] : groups_->all) {
    if (group.is_joined) static_cast<void>(group.channel->is_ready());
  }
  if (copies_) copies_->look();
  while (!active_.empty() && is_done(*active_.front())) active_.pop_front();
}

void NcclTransport::abort() noexcept {
  end_steps();
  if (copies_) copies_->give_up();
  for (auto& [host, group] : groups_->all) group.channel->abort();
  for (const auto& channel : groups_->leaving) channel->abort();
  if (copies_) copies_->finish_giving_up();
  active_.clear();
}

void NcclTransport::forget(const Communicator& host) noexcept {
  const auto group = groups_->all.find(&host);
  if (group != groups_->all.end()) {
    end_steps();
    group->second.channel->start_finish();
    groups_->leaving.push_back(std::move(group->second.channel));
    groups_->all.erase(group);
    if (copies_) copies_->forget(host);
  }
  std::erase_if(groups_->leaving, [](const auto& channel) { return channel->finished(); });
}

}  // namespace longhaul
