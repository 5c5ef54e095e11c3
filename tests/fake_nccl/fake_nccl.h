// What tests ask of the made-up NCCL beside NCCL's own calls. The library is opened by name, so
// these are found with dlsym.
#pragma once

extern "C" {
// The n-th poll from now fails with ncclRemoteError, on whichever communicator; -1: none.
void fake_nccl_fail_after(int n_polls);
// While on, nothing in any stream meets its peer.
void fake_nccl_stall(int stalled);
// Made and neither destroyed nor aborted.
int fake_nccl_communicators();
// Made so far.
int fake_nccl_ids();
}
