// Every rank passes something on to the next one: the pattern of transfers that most tests of
// communicators, and the benchmark, are made of.
#pragma once
#include <span>

#include "cluster/comm/communicator.h"

namespace longhaul::test {

// Collective over comm, does not wait. Sends `out` to the next rank and receives `in` from the
// previous one. The sizes may differ from rank to rank: `in` has the size of the previous rank's
// `out`. They must not overlap.
//
// 4 ranks, each holding its own keys:      after one shift:      after three:
//   rank   0   1   2   3                     0   1   2   3         0   1   2   3
//   holds  K0  K1  K2  K3                    K3  K0  K1  K2        K1  K2  K3  K0
inline RingTransfer start_ring_shift(Communicator& comm, std::span<const std::byte> out,
                                     std::span<std::byte> in, Tag tag = {Traffic::kKeys}) {
  RingTransfer transfer;
  transfer.receive = comm.start_receive(comm.previous(), tag, in);
  transfer.send = comm.start_send(comm.next(), tag, out);
  return transfer;
}

// Returns when `in` is complete and `out` may be used again.
inline void ring_shift(Communicator& comm, std::span<const std::byte> out, std::span<std::byte> in,
                       Tag tag = {Traffic::kKeys}) {
  start_ring_shift(comm, out, in, tag).wait();
}

// Collective over comm, does not wait. The same as a step that all ranks know, which GPUs exchange
// without hosts.
inline Exchange start_ring_exchange(Communicator& comm, std::span<const std::byte> out,
                                    std::span<std::byte> in, Tag tag = {Traffic::kKeys}) {
  const Incoming from{comm.previous(), in};
  const Outgoing to{comm.next(), out};
  return comm.start_exchange(tag, {&from, 1}, {&to, 1});
}

}  // namespace longhaul::test
