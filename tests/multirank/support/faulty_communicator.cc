#include "tests/multirank/support/faulty_communicator.h"

#include <thread>

namespace longhaul::test {
namespace {

std::shared_ptr<CommunicatorFamily> family_like(const Communicator& comm) {
  auto family = std::make_shared<CommunicatorFamily>();
  family->aborted = std::make_shared<FailureFlag>();
  family->default_deadline = comm.default_deadline();
  return family;
}

}  // namespace

FaultyCommunicator::FaultyCommunicator(Communicator& inner, std::vector<Fault> faults)
    : Communicator(group_of(inner), family_like(inner)),
      inner_(inner),
      faults_(std::move(faults)) {}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> inner,
                                       std::vector<Fault> faults)
    : Communicator(group_of(*inner), family_like(*inner)),
      owned_(std::move(inner)),
      inner_(*owned_),
      faults_(std::move(faults)) {}

std::unique_ptr<Communicator> FaultyCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new FaultyCommunicator(std::move(part), faults_));
}

int FaultyCommunicator::post_send(int to, Tag tag, std::span<const std::byte> data) {
  const int number = n_sent_[tag.traffic]++;
  Posted posted;
  for (const Fault& fault : faults_) {
    if (fault.job_rank != job_rank() || fault.traffic != tag.traffic || fault.nth != number)
      continue;
    switch (fault.kind) {
      case Fault::Kind::kDrop:
        return transfers_.add(Posted());
      case Fault::Kind::kDelay:
        std::this_thread::sleep_for(fault.delay);
        break;
      case Fault::Kind::kCorrupt:
        posted.changed.assign(data.begin(), data.end());
        if (!data.empty()) posted.changed[data.size() / 2] ^= std::byte{1};
        data = posted.changed;  // moving the vector keeps its memory
        break;
      case Fault::Kind::kThrow:
        throw Error(ErrorCode::kIo, "injected fault");
    }
  }
  posted.transfer = inner_.start_send(to, tag, data);
  return transfers_.add(std::move(posted));
}

int FaultyCommunicator::post_receive(int from, Tag tag, std::span<std::byte> buffer) {
  return transfers_.add({.transfer = inner_.start_receive(from, tag, buffer), .changed = {}});
}

bool FaultyCommunicator::test_ticket(int ticket) {
  if (!transfers_[ticket].transfer.test()) return false;
  transfers_.release(ticket);
  return true;
}

bool FaultyCommunicator::wait_ticket(int ticket, Deadline deadline) {
  transfers_[ticket].transfer.wait(deadline);
  transfers_.release(ticket);
  return true;
}

}  // namespace longhaul::test
