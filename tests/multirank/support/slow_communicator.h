// A communicator whose messages arrive some looks after they are there, as over a network: for what
// depends on who sees what first.
#pragma once
#include <memory>
#include <span>

#include "cluster/comm/communicator.h"
#include "cluster/comm/slot_table.h"

namespace longhaul::test {

// Stands before `host`, which outlives it. It is not split.
class SlowCommunicator final : public Communicator {
 public:
  SlowCommunicator(Communicator& host, int n_looks)
      : Communicator(group_of(host), family_of(host)), host_(host), n_looks_(n_looks) {}

  void progress() override { host_.progress(); }
  std::unique_ptr<Communicator> split(int, int) override { return nullptr; }

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override {
    return posted_.add({host_.start_send(to, tag, data), 0});
  }
  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override {
    return posted_.add({host_.start_receive(from, tag, buffer), n_looks_});
  }
  bool test_ticket(int ticket) override {
    Posted& posted = posted_[ticket];
    if (!posted.transfer.test() || posted.looks_to_go-- > 0) return false;
    posted_.release(ticket);
    return true;
  }
  bool wait_ticket(int ticket, Deadline deadline) override {
    posted_[ticket].transfer.wait(deadline);
    posted_.release(ticket);
    return true;
  }
  void drop_ticket(int ticket) noexcept override { posted_.release(ticket); }
  void tell_peers(const Verdict& verdict) noexcept override {
    host_.abort(verdict.code, verdict.message);
  }

 private:
  struct Posted {
    Transfer transfer;
    int looks_to_go = 0;
  };
  Communicator& host_;
  int n_looks_;
  SlotTable<Posted> posted_;
};

}  // namespace longhaul::test
