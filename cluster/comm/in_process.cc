#include "cluster/comm/in_process.h"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <thread>

#include "cluster/comm/in_process_hub.h"
#include "cluster/comm/slot_table.h"

namespace longhaul {
namespace {

using State = InProcessTransfer::State;

constexpr int kMaxRanks = 1 << 16;

// Messages that may match: 16 bits each for context, sender, receiver and tag.
std::uint64_t channel_of(int context, int from, int to, Tag tag) {
  const auto part = [](int value, int shift) {
    return (static_cast<std::uint64_t>(value) & 0xFFFF) << shift;
  };
  const int label = static_cast<int>(tag.traffic) * kStreams + tag.stream;
  return part(context, 48) | part(from, 32) | part(to, 16) | part(label, 0);
}

// Thread: that of its rank.
class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessHub> hub, Group group,
                        std::shared_ptr<CommunicatorFamily> family)
      : Communicator(std::move(group), std::move(family)), hub_(std::move(hub)) {}

  void progress() override { throw_if_broken(); }  // transfers advance by themselves

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::optional<Group> chosen = split_group(color, key);
    if (!chosen) return nullptr;
    return std::make_unique<InProcessCommunicator>(hub_, std::move(*chosen), family());
  }

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override {
    const auto channel = channel_of(group().context, job_rank(), job_rank_of(to), tag);
    return transfers_.add(hub_->post_send(channel, job_rank(), data));
  }
  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override {
    const auto channel = channel_of(group().context, job_rank_of(from), job_rank(), tag);
    return transfers_.add(hub_->post_receive(channel, job_rank(), buffer));
  }
  bool test_ticket(int ticket) override {
    const InProcessTransfer& transfer = *transfers_[ticket];
    if (!transfer.ended()) return false;
    if (transfer.state.load() == State::kRefused) refuse(transfer);
    transfers_.release(ticket);
    return true;
  }
  bool wait_ticket(int ticket, Deadline deadline) override {
    if (!hub_->wait(*transfers_[ticket], deadline)) return false;
    if (test_ticket(ticket)) return true;
    throw_if_broken();
    throw Error(ErrorCode::kInternal, "a wait ended without a reason");
  }
  void drop_ticket(int ticket) noexcept override {
    hub_->withdraw(transfers_[ticket]);
    transfers_.release(ticket);
  }
  void tell_peers(const Verdict&) noexcept override { hub_->wake_all(); }

 private:
  [[noreturn]] void refuse(const InProcessTransfer& transfer) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {}: expected a message of {} bytes, but {} were sent", job_rank(),
                            transfer.target.size(), transfer.sent_bytes));
  }

  std::shared_ptr<InProcessHub> hub_;
  SlotTable<std::shared_ptr<InProcessTransfer>> transfers_;
};

}  // namespace

std::shared_ptr<InProcessHub> make_in_process_hub(int n_ranks) {
  require(n_ranks >= 1 && n_ranks <= kMaxRanks,
          fmt::format("the number of ranks is {}; it must be 1 to {}", n_ranks, kMaxRanks));
  return std::make_shared<InProcessHub>(n_ranks);
}

std::unique_ptr<Communicator> make_in_process_communicator(const CommunicatorConfig& config) {
  const auto hub = config.hub ? config.hub : make_in_process_hub(1);
  require(config.rank >= 0 && config.rank < hub->size(),
          fmt::format("rank {} is not one of the hub's {} ranks", config.rank, hub->size()));
  Group everybody{.members = {}, .rank = config.rank, .context = 0};
  for (int r = 0; r < hub->size(); ++r) everybody.members.push_back(r);
  auto family = std::make_shared<CommunicatorFamily>();
  family->aborted = hub->aborted();
  family->default_deadline = config.default_deadline;
  return std::make_unique<InProcessCommunicator>(hub, std::move(everybody), std::move(family));
}

void run_in_process(int n_ranks, const std::function<void(Communicator&)>& body,
                    const CommunicatorConfig& config) {
  const auto hub = make_in_process_hub(n_ranks);
  std::exception_ptr first_error;
  std::mutex mutex;  // guards first_error
  const auto run_rank = [&](int rank) {
    CommunicatorConfig mine = config;
    mine.kind = CommunicatorKind::kInProcess;
    mine.hub = hub;
    mine.rank = rank;
    const std::unique_ptr<Communicator> comm = make_communicator(mine);
    try {
      body(*comm);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
      const Verdict verdict = verdict_of(std::current_exception(), rank);
      comm->abort(verdict.code, verdict.message);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < n_ranks; ++rank) threads.emplace_back(run_rank, rank);
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace longhaul
