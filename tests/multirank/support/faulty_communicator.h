// A communicator that misbehaves on purpose: wraps a good one and spoils chosen messages. Wrap it
// on all ranks, with the same list of faults.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "cluster/comm/communicator.h"
#include "cluster/comm/slot_table.h"

namespace longhaul::test {

struct Fault {
  enum class Kind {
    kDrop,     // the message is never sent; the sender believes it was
    kDelay,    // the sender is held up for `delay`
    kCorrupt,  // one bit of the message is flipped
    kThrow,    // start_send throws kIo "injected fault"
  };
  Kind kind = Kind::kDrop;
  int job_rank = 0;                   // whose sends
  Traffic traffic = Traffic::kOther;  // of which label
  int nth = 0;                        // which of them, from 0
  std::chrono::milliseconds delay{0};
};

class FaultyCommunicator final : public Communicator {
 public:
  // `inner` must outlive this.
  FaultyCommunicator(Communicator& inner, std::vector<Fault> faults);

  void progress() override { inner_.progress(); }
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override;
  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override;
  bool test_ticket(int ticket) override;
  bool wait_ticket(int ticket, Deadline deadline) override;
  void drop_ticket(int ticket) noexcept override { transfers_.release(ticket); }
  void tell_peers(const Verdict& verdict) noexcept override {
    inner_.abort(verdict.code, verdict.message);
  }

 private:
  struct Posted {
    Transfer transfer;
    std::vector<std::byte> changed;  // the message that is sent instead
  };
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::vector<Fault> faults);

  std::unique_ptr<Communicator> owned_;  // of a split
  Communicator& inner_;
  std::vector<Fault> faults_;
  std::map<Traffic, int> n_sent_;
  SlotTable<Posted> transfers_;
};

}  // namespace longhaul::test
