// Makes a test of host spans one of GPU memory: stands before a GPU communicator and gives it a GPU
// buffer for every span. What fills the buffers is queued on the compute stream and nothing else
// waits for it, so a transfer that does not keep to the stream's order moves the wrong bytes.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/device/device_cuda.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/slot_table.h"

namespace longhaul::test {

class DeviceSpans final : public Communicator {
 public:
  // Both must outlive it; `stream` is the communicator's compute stream.
  DeviceSpans(Communicator& gpu, cuda::Stream& stream);

  void progress() override { gpu_.progress(); }
  void prepare_exchanges() override { gpu_.prepare_exchanges(); }
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override;
  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override;
  std::vector<int> post_exchange(Tag tag, std::span<const Incoming> in,
                                 std::span<const Outgoing> out) override;
  bool test_ticket(int ticket) override;
  bool wait_ticket(int ticket, Deadline deadline) override;
  void drop_ticket(int ticket) noexcept override { posted_.release(ticket); }
  void tell_peers(const Verdict& verdict) noexcept override {
    gpu_.abort(verdict.code, verdict.message);
  }

 private:
  struct Posted {
    cuda::Buffer device;
    cuda::PinnedBuffer pinned;
    std::span<std::byte> target;  // of a receive
    Transfer transfer;            // first to go
  };
  DeviceSpans(std::unique_ptr<Communicator> gpu, cuda::Stream& stream);
  // Memory of the GPU, and the work on it that comes before a transfer.
  Posted prepared_send(std::span<const std::byte> data);
  Posted prepared_receive(std::span<std::byte> buffer);
  void finish(int ticket);

  std::unique_ptr<Communicator> owned_;  // of a split
  Communicator& gpu_;
  cuda::Stream& stream_;
  SlotTable<Posted> posted_;
};

}  // namespace longhaul::test
