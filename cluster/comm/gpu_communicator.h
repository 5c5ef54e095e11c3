// Exchanging data that lies in GPU memory: a communicator that stands before a communicator of
// hosts (MPI or in-process) and takes spans of either memory.
//
//   auto ring = job.split(...);                                      // hosts
//   auto comm = make_gpu_communicator(*ring, {.stream = &stream});   // this rank's tensors
//   auto in = comm->start_receive(comm->previous(), tag, arriving);  // GPU memory
//   auto out = comm->start_send(comm->next(), tag, visiting);
//   attention(stream.ref(), ...);                                    // queued on `stream`
//   in.wait(), out.wait();                                           // copies overlapped with it
//
// What holds of spans in this rank's GPU memory, beside the contract of Communicator:
//   * A send starts when the work that was queued on the compute stream before start_send is done.
//   * A receive writes when the work that was queued before start_receive is done: readers of the
//     buffer's old content need no waiting for.
//   * When wait() returns, or test() returns true, work that is queued on the compute stream from
//     then on finds the data. (Other streams, and the host, do not: they wait for the compute
//     stream.)
//   * A collective stands in the compute stream's order, like an operator.
//   * split() comes after the sends of GPU memory that were started before it have begun.
// The host waits in the calls only for peers and, in staged sends and collectives, for the work
// queued before them. While a host waits for the compute stream, transfers advance and failures of
// others are seen; after the communicator's default deadline it throws kTimeout.
//
// Three transports. *Staged*: through pinned memory and the host communicator, on streams of their
// own, so that copies overlap with compute. A message is the same on the wire whichever memory its
// ends are in: ranks with GPUs and ranks without, and ranks that share a GPU, exchange freely, and
// a rank without a GPU uses the host communicator itself. *NCCL*: straight between GPUs
// (nccl_transport.h), in groups whose ranks all have it and GPUs of their own, for exchanges
// (Communicator::start_exchange) and for collectives that gather or add floats; no host waits for
// those, and they may be parts of steps that are noted. All memory that the ranks give to one
// of these is GPUs', or all is the hosts'. Single messages are staged: NCCL would have to know
// their order. *Copy engines* (copy_engines.h), with NCCL: parts of exchanges between ranks of one
// host that reach each other's memory, in groups whose ranks all ask for them; the rest goes by
// NCCL. Sums have the same order, hence the same bits, in all.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/device/device_cuda.h"
#include "cluster/comm/communicator.h"
#include "cluster/comm/gpu_transport.h"

namespace longhaul {

// Queues sum[i] = ((rows[0][i] + rows[1][i]) + rows[2][i]) + ...; rows: [n_rows, n], GPU memory.
using SumRows = std::function<void(cuda::Stream& stream, float* sum, const float* rows,
                                   std::int64_t n_rows, std::int64_t n)>;

struct GpuCommunicatorConfig {
  // The compute stream; must outlive the communicator. Null: this rank has no GPU.
  cuda::Stream* stream = nullptr;
  GpuTransport transport = GpuTransport::kStaged;
  std::string nccl_library = "libnccl.so.2";  // opened when it is first used
  SumRows sum_rows = {};  // a kernel, for all_reduce_sum by NCCL; without it sums are staged
  CopyEngineConfig copy_engines = {};
};

// kStaged: local; ranks without GPUs need not call it. Others: collective over host, for ranks
// without GPUs as well. Null for a rank without a GPU. `host` must outlive the result,
// and fails with it; do not use both for messages of the same tag. Thread: that of `host` and of
// the stream, whose GPU must be the thread's.
std::unique_ptr<Communicator> make_gpu_communicator(Communicator& host,
                                                    const GpuCommunicatorConfig& config);

}  // namespace longhaul
