#include "cluster/comm/gpu_communicator.h"

#include <fmt/format.h>

#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/gpu_staging.h"
#include "cluster/comm/slot_table.h"

namespace longhaul {
namespace {

// Waits look this often without pause, then give way to other threads between looks.
constexpr int kEagerPolls = 1000;

// Thread: that of the host communicator and of the compute stream.
class GpuCommunicator final : public Communicator {
 public:
  // `owned` is null when somebody else owns `host`.
  GpuCommunicator(Communicator& host, std::unique_ptr<Communicator> owned,
                  std::shared_ptr<GpuStaging> staging)
      : Communicator(group_of(host), family_of(host)),
        owned_(std::move(owned)),
        host_(host),
        staging_(std::move(staging)) {}

  void progress() override {
    staging_->start_ready();
    host_.progress();
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    start_all_sends();  // peers may wait for them before they come here
    std::unique_ptr<Communicator> part = host_.split(color, key);
    if (!part) return nullptr;
    Communicator& host = *part;
    return std::make_unique<GpuCommunicator>(host, std::move(part), staging_);
  }

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override {
    if (is_on_gpu(data)) return posted_.add(staging_->send(host_, to, tag, data));
    if (auto send = staging_->send_behind(host_, to, tag, data)) return posted_.add(send);
    return posted_.add(std::make_shared<Transfer>(host_.start_send(to, tag, data)));
  }

  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override {
    if (is_on_gpu(buffer)) return posted_.add(staging_->receive(host_, from, tag, buffer));
    return posted_.add(std::make_shared<Transfer>(host_.start_receive(from, tag, buffer)));
  }

  bool test_ticket(int ticket) override {
    staging_->start_ready();
    const Posted posted = posted_[ticket];
    Transfer* transfer = transfer_of(posted);
    if (transfer == nullptr || !transfer->test()) return false;
    finish(ticket, posted);
    return true;
  }

  bool wait_ticket(int ticket, Deadline deadline) override {
    for (int polls = 0;; ++polls) {
      if (test_ticket(ticket)) return true;
      const Posted posted = posted_[ticket];
      if (!staging_->has_waiting_sends()) {
        transfer_of(posted)->wait(deadline);  // names what it waited for when it gives up
        finish(ticket, posted);
        return true;
      }
      pause(polls);
      if (Clock::now() >= deadline) return false;
    }
  }

  void drop_ticket(int ticket) noexcept override {
    if (const auto* send = std::get_if<std::shared_ptr<StagedSend>>(&posted_[ticket])) {
      staging_->withdraw(*send);
    }
    posted_.release(ticket);
  }

  void tell_peers(const Verdict& verdict) noexcept override {
    host_.abort(verdict.code, verdict.message);
  }

  HostCopy host_copy(std::span<const std::byte> data, Use use) override {
    if (!is_on_gpu(data)) return Communicator::host_copy(data, use);
    const std::shared_ptr<PinnedBlock> block = staging_->pool().take(data.size());
    if (use == Use::kRead) {
      cuda::queue_copy_to_host(staging_->compute(), block->data(), data.data(), data.size());
      block->copied.record(staging_->compute());
      wait_for_gpu([&] {
        staging_->start_ready();
        return block->copied.is_done();
      });
    }
    return {.bytes = {block->data(), data.size()}, .owner = block};
  }

  void put_back(const HostCopy& copy, std::span<std::byte> data) override {
    if (!copy.owner) return;
    const auto block = std::static_pointer_cast<PinnedBlock>(copy.owner);
    cuda::queue_copy_to_gpu(staging_->compute(), data.data(), block->data(), data.size());
    block->copied.record(staging_->compute());
  }

 private:
  using Posted = std::variant<std::shared_ptr<Transfer>, std::shared_ptr<StagedSend>,
                              std::shared_ptr<StagedReceive>>;

  static bool is_on_gpu(std::span<const std::byte> data) {
    return !data.empty() && cuda::is_gpu_memory(data.data());
  }

  // Null: it has not started.
  static Transfer* transfer_of(const Posted& posted) {
    if (const auto* plain = std::get_if<std::shared_ptr<Transfer>>(&posted)) return plain->get();
    if (const auto* send = std::get_if<std::shared_ptr<StagedSend>>(&posted)) {
      return (*send)->started ? &(*send)->transfer : nullptr;
    }
    return &std::get<std::shared_ptr<StagedReceive>>(posted)->transfer;
  }

  void finish(int ticket, const Posted& posted) {
    if (const auto* receive = std::get_if<std::shared_ptr<StagedReceive>>(&posted)) {
      staging_->finish(**receive);
    }
    posted_.release(ticket);
  }

  // Between looks at something that takes a while: lets transfers advance, sees aborts.
  void pause(int polls) {
    if (polls < kEagerPolls && polls % 32 != 31) return;
    host_.progress();
    if (polls >= kEagerPolls) std::this_thread::yield();
  }

  // Blocks until done() is true; lets transfers advance.
  template <typename Done>
  void wait_for_gpu(Done done) {
    const Stopwatch watch;
    const Deadline deadline = deadline_in(default_deadline());
    for (int polls = 0; !done(); ++polls) {
      pause(polls);
      if (Clock::now() < deadline) continue;
      const std::string message =
          fmt::format("rank {}: waited {:.1f} s for the work of its GPU, then gave up", job_rank(),
                      watch.seconds());
      if (!family()->broken) family()->broken = message;
      throw Error(ErrorCode::kTimeout, message);
    }
  }

  void start_all_sends() {
    wait_for_gpu([&] {
      staging_->start_ready();
      return !staging_->has_waiting_sends();
    });
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& host_;
  std::shared_ptr<GpuStaging> staging_;
  SlotTable<Posted> posted_;
};

}  // namespace

std::unique_ptr<Communicator> make_gpu_communicator(Communicator& host,
                                                    const GpuCommunicatorConfig& config) {
  require(config.stream != nullptr, "make_gpu_communicator: needs the rank's compute stream");
  return std::make_unique<GpuCommunicator>(host, nullptr,
                                           std::make_shared<GpuStaging>(*config.stream));
}

}  // namespace longhaul
