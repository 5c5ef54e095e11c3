// A rank's part of what all ranks of a job do together, with one end for all of them.
#pragma once
#include <exception>

#include "cluster/comm/communicator.h"
#include "cluster/comm/verdict.h"

namespace longhaul {

// Does `work`. Should it fail, the others are told (Communicator::abort), and what is thrown is the
// first failure of any rank: one that was only told of it must not end the job as if a rank had
// been lost, which another try could mend.
template <typename Work>
void or_abort(Communicator& comm, const Work& work) {
  try {
    work();
  } catch (...) {
    const Verdict mine = verdict_of(std::current_exception(), comm.job_rank());
    comm.abort(mine.code, mine.message);
    const Verdict first = comm.first_abort();
    if (first.rank != mine.rank) throw_if_failed(first);
    throw;
  }
}

}  // namespace longhaul
