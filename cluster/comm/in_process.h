// Ranks as threads of one process: for one machine, and for tests of everything distributed.
#pragma once
#include <functional>
#include <memory>

#include "cluster/comm/communicator.h"

namespace longhaul {

// Where the ranks of an in-process job meet; shared by their communicators. Thread-safe.
std::shared_ptr<InProcessHub> make_in_process_hub(int n_ranks);

// For tests (a job has its own threads, tools/job/thread_ranks.cc). Runs body(comm) on n_ranks
// threads and returns when all have ended. If one throws, the job is aborted, so that the others
// leave their waits with kPeerFailed, and the first error is thrown here. `config.kind`, `hub` and
// `rank` are ignored.
void run_in_process(int n_ranks, const std::function<void(Communicator&)>& body,
                    const CommunicatorConfig& config = {});

// The kInProcess part of make_communicator.
std::unique_ptr<Communicator> make_in_process_communicator(const CommunicatorConfig& config);

}  // namespace longhaul
