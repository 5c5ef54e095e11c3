// Exchanging data that lies in GPU memory: a communicator that stands before a communicator of
// hosts (MPI or in-process) and takes spans of either memory.
//
//   auto ring = job.split(...);                                       // hosts
//   auto comm = make_gpu_communicator(*ring, {.stream = &stream});    // this rank's tensors
//   RingTransfer moving = comm->start_ring_shift(visiting, arriving); // GPU memory
//   attention(stream.ref(), ...);                                     // queued on `stream`
//   moving.wait();                                                    // copies overlapped with it
//
// What holds of spans in this rank's GPU memory, beside the contract of Communicator:
//   * A send starts when the work that was queued on the compute stream before start_send is done.
//   * A receive writes when the work that was queued before start_receive is done: readers of the
//     buffer's old content need no waiting for.
//   * When wait() returns, or test() returns true, work that is queued on the compute stream from
//     then on finds the data. (Other streams, and the host, do not: they wait for the compute
//     stream.)
//   * A collective stands in the compute stream's order, like an operator.
// The host waits in the calls only for peers and, in sends and collectives, for the work queued
// before them.
//
// Staged transfers (every one, so far): through pinned memory and the host communicator, on streams
// of their own, so that they overlap with compute. A message is the same on the wire whichever
// memory its ends are in: ranks with GPUs and ranks without, and ranks that share a GPU, exchange
// freely, and a rank without a GPU uses the host communicator itself.
#pragma once
#include <memory>

#include "cluster/comm/communicator.h"
#include "kernels/device_cuda.h"

namespace longhaul {

struct GpuCommunicatorConfig {
  cuda::Stream* stream = nullptr;  // the compute stream; must outlive the communicator
};

// Local. `host` must outlive the result, and fails with it; do not use both for messages of the
// same tag. Thread: that of `host` and of the stream.
std::unique_ptr<Communicator> make_gpu_communicator(Communicator& host,
                                                    const GpuCommunicatorConfig& config);

}  // namespace longhaul
