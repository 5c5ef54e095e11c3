// A library with the calls of NCCL that cluster/comm uses, on the made-up GPUs of
// tests/cuda_on_host: ranks are threads of one process. As strict as NCCL is and as late as it
// may be: communicators need several polls before they are ready, a call on one that is not ready
// is an error, nothing is in a stream before its call has been polled to its end, a group blocks
// its stream until all of its parts have met their peers, and messages of other sizes than expected
// are errors. A GPU does one group at a time, in the order in which its streams come to them, since
// those of several communicators need not run beside each other; and communicators, and the first
// message of a pair of ranks, are made when both ask for it and no group is under way. Errors, and
// peers that never come, can be asked for (fake_nccl.h).
#include "tests/fake_nccl/fake_nccl.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/streams.h"

struct ncclComm;

namespace longhaul::fake_nccl {
namespace {

using cuda_on_host::DeviceMemoryAccess;
using cuda_on_host::runtime_lock;
using Lock = std::lock_guard<std::recursive_mutex>;

enum Result {
  kSuccess = 0,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

constexpr int kPollsUntilReady = 3;

struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  bool sends = false;
  bool met = false;
};

// What one ncclGroupEnd, or one call outside of a group, puts into a stream.
struct Op {
  std::vector<std::shared_ptr<Part>> parts;
  std::function<void()> own;  // what a rank does by itself
  bool posted = false;
};

// All communicators with one id.
struct Clique {
  int n_ranks = 0;
  std::map<int, ncclComm*> comms;  // by rank; those that are still there
  int n_joined = 0;
  int n_finalized = 0;
  bool somebody_aborted = false;
  // Who has asked for a connection to whom; there is one when both have.
  std::set<std::pair<int, int>> asked;
  // From rank to rank: parts whose turn in their streams has come.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Part>>> sends, receives;
};

}  // namespace
}  // namespace longhaul::fake_nccl

struct ncclComm {
  int rank = 0;
  int device = 0;
  std::shared_ptr<longhaul::fake_nccl::Clique> clique;
  int polls_to_go = 0;  // until the last call is over
  bool is_initialising = true;
  bool is_finalizing = false;
  bool failed = false;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  std::shared_ptr<longhaul::fake_nccl::Op> op;  // that the last call will put into `stream`
  bool makes_connections = false;               // for `op`
  cudaStream_t stream = nullptr;
  int n_in_flight = 0;
};

namespace longhaul::fake_nccl {
namespace {

struct State {
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  int n_ids = 0;
  int n_alive = 0;
  std::map<int, std::pair<ncclComm*, const Op*>> under_way;  // by GPU
  int fail_after_polls = -1;
  bool stalled = false;
};
State& state() {
  static State the_state;
  return the_state;
}

struct Group {
  int depth = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::shared_ptr<Op> op;
};
thread_local Group group;

// Parts of one direction between two ranks meet in order.
bool meet(ncclComm* comm) {
  Clique& clique = *comm->clique;
  for (auto& [pair, sends] : clique.sends) {
    auto& receives = clique.receives[pair];
    while (!sends.empty() && !receives.empty()) {
      Part& send = *sends.front();
      Part& receive = *receives.front();
      if (send.bytes != receive.bytes) return false;
      {
        const DeviceMemoryAccess access;
        std::memmove(receive.data, send.data, send.bytes);
      }
      send.met = receive.met = true;
      sends.pop_front();
      receives.pop_front();
    }
  }
  return true;
}

// One look of the stream at its front. True when the group is over.
bool run(ncclComm* comm, const std::shared_ptr<bool>& aborted, Op& op) {
  if (*aborted) return true;  // the communicator may be gone
  if (state().stalled) return false;
  Clique& clique = *comm->clique;
  if (!op.posted) {
    if (!state().under_way.try_emplace(comm->device, comm, &op).second) return false;
    op.posted = true;
    if (op.own) op.own();
    for (const auto& part : op.parts) {
      const std::pair<int, int> pair =
          part->sends ? std::pair(comm->rank, part->peer) : std::pair(part->peer, comm->rank);
      (part->sends ? clique.sends : clique.receives)[pair].push_back(part);
    }
    return false;  // not before somebody asks again
  }
  if (!meet(comm)) comm->failed = true;
  if (!std::all_of(op.parts.begin(), op.parts.end(), [](const auto& part) { return part->met; })) {
    return false;
  }
  --comm->n_in_flight;
  state().under_way.erase(comm->device);
  return true;
}

bool is_connected(const ncclComm* comm, const Op& op) {
  return std::all_of(op.parts.begin(), op.parts.end(), [comm](const auto& part) {
    return comm->clique->asked.contains({part->peer, comm->rank});
  });
}

// For each launch of a graph its own.
std::shared_ptr<Op> copy_of(const Op& op) {
  auto copy = std::make_shared<Op>();
  copy->own = op.own;
  for (const auto& part : op.parts) copy->parts.push_back(std::make_shared<Part>(*part));
  return copy;
}

int submit(ncclComm* comm, cudaStream_t stream, std::shared_ptr<Op> op) {
  if (comm->is_initialising || comm->is_finalizing || comm->polls_to_go > 0) return kInvalidUsage;
  for (const auto& part : op->parts) {
    if (comm->clique->asked.emplace(comm->rank, part->peer).second) comm->makes_connections = true;
  }
  comm->op = std::move(op);
  comm->stream = stream;
  comm->polls_to_go = kPollsUntilReady;
  return kInProgress;
}

std::shared_ptr<Part> part_of(const void* data, std::size_t bytes, int peer, bool sends) {
  auto part = std::make_shared<Part>();
  part->data = static_cast<std::byte*>(const_cast<void*>(data));
  part->bytes = bytes;
  part->peer = peer;
  part->sends = sends;
  return part;
}

int add(const void* data, std::size_t count, int type, int peer, ncclComm* comm,
        cudaStream_t stream, bool sends) {
  const Lock lock(runtime_lock());
  if (type != 0 || peer < 0 || peer >= comm->clique->n_ranks || peer == comm->rank) {
    return kInvalidArgument;
  }
  const auto part = part_of(data, count, peer, sends);
  if (group.depth == 0) {
    auto op = std::make_shared<Op>();
    op->parts.push_back(part);
    return submit(comm, stream, std::move(op));
  }
  if (comm->polls_to_go > 0 || (group.comm != nullptr && group.comm != comm)) return kInvalidUsage;
  group.comm = comm;
  group.stream = stream;
  group.op->parts.push_back(part);
  return kSuccess;
}

void leave(ncclComm* comm) {
  std::erase_if(state().under_way, [comm](const auto& of) { return of.second.first == comm; });
  *comm->aborted = true;
  comm->clique->comms.erase(comm->rank);
  --state().n_alive;
  delete comm;
}

}  // namespace
}  // namespace longhaul::fake_nccl

using namespace longhaul::fake_nccl;

extern "C" {

struct FakeId {
  char bytes[128];
};
// The beginning of ncclConfig_t.
struct FakeConfig {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
};

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}
const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInProgress:
      return "operation in progress";
  }
  return "unknown result code";
}
int ncclGetUniqueId(FakeId* id) {
  const Lock lock(runtime_lock());
  std::memset(id, 0, sizeof *id);
  const std::string name = "clique " + std::to_string(state().n_ids++);
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}
int ncclCommInitRankConfig(ncclComm** comm, int n_ranks, FakeId id, int rank, FakeConfig* config) {
  const Lock lock(runtime_lock());
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalidUsage;
  // By default NCCL takes as many multiprocessors, and as much memory, as it likes.
  if (config->min_ctas < 1 || config->max_ctas < config->min_ctas) return kInvalidUsage;
  std::shared_ptr<Clique>& clique = state().cliques[id.bytes];
  if (!clique) clique = std::make_shared<Clique>();
  if (clique->comms.contains(rank)) return kInvalidUsage;
  clique->n_ranks = n_ranks;
  *comm = new ncclComm;
  (*comm)->rank = rank;
  cudaGetDevice(&(*comm)->device);
  (*comm)->clique = clique;
  (*comm)->polls_to_go = kPollsUntilReady;
  clique->comms[rank] = *comm;
  ++clique->n_joined;
  ++state().n_alive;
  return kInProgress;
}
int ncclCommGetAsyncError(ncclComm* comm, int* result) {
  const Lock lock(runtime_lock());
  if (state().fail_after_polls >= 0 && state().fail_after_polls-- == 0) comm->failed = true;
  const Clique& clique = *comm->clique;
  if (comm->failed || (clique.somebody_aborted && comm->n_in_flight > 0)) {
    comm->failed = true;
    *result = kRemoteError;
    return kSuccess;
  }
  *result = kInProgress;
  if (comm->is_initialising && clique.n_joined < clique.n_ranks) return kSuccess;
  if (comm->op && !is_connected(comm, *comm->op)) return kSuccess;
  if ((comm->is_initialising || comm->makes_connections) &&
      state().under_way.contains(comm->device)) {
    return kSuccess;
  }
  if (comm->is_finalizing && clique.n_finalized < clique.n_ranks && !clique.somebody_aborted) {
    return kSuccess;
  }
  if (comm->polls_to_go > 0 && --comm->polls_to_go > 0) return kSuccess;
  comm->is_initialising = false;
  comm->makes_connections = false;
  if (comm->op) {
    longhaul::cuda_on_host::queue_waiting(
        comm->stream, comm, [comm, aborted = comm->aborted, op = comm->op] {
          if (*aborted) return longhaul::cuda_on_host::Work([] { return true; });
          ++comm->n_in_flight;
          return longhaul::cuda_on_host::Work(
              [=, again = copy_of(*op)] { return run(comm, aborted, *again); });
        });
    comm->op = nullptr;
  }
  *result = kSuccess;
  return kSuccess;
}
int ncclSend(const void* data, std::size_t count, int type, int peer, ncclComm* comm,
             cudaStream_t stream) {
  return add(data, count, type, peer, comm, stream, /*sends=*/true);
}
int ncclRecv(void* data, std::size_t count, int type, int peer, ncclComm* comm,
             cudaStream_t stream) {
  return add(data, count, type, peer, comm, stream, /*sends=*/false);
}
int ncclAllGather(const void* mine, void* all, std::size_t count, int type, ncclComm* comm,
                  cudaStream_t stream) {
  const Lock lock(runtime_lock());
  if (type != 0 || group.depth > 0) return kInvalidUsage;
  auto op = std::make_shared<Op>();
  auto* to = static_cast<std::byte*>(all);
  for (int r = 0; r < comm->clique->n_ranks; ++r) {
    std::byte* place = to + static_cast<std::size_t>(r) * count;
    if (r == comm->rank) {
      op->own = [=] {
        const DeviceMemoryAccess access;
        std::memmove(place, mine, count);
      };
      continue;
    }
    op->parts.push_back(part_of(mine, count, r, /*sends=*/true));
    op->parts.push_back(part_of(place, count, r, /*sends=*/false));
  }
  return submit(comm, stream, std::move(op));
}
int ncclGroupStart() {
  if (group.depth++ == 0)
    group = {.depth = 1, .comm = nullptr, .stream = nullptr, .op = std::make_shared<Op>()};
  return kSuccess;
}
int ncclGroupEnd() {
  const Lock lock(runtime_lock());
  if (group.depth == 0) return kInvalidUsage;
  if (--group.depth > 0 || group.comm == nullptr) return kSuccess;
  return submit(group.comm, group.stream, std::move(group.op));
}
int ncclCommFinalize(ncclComm* comm) {
  const Lock lock(runtime_lock());
  if (comm->polls_to_go > 0 || comm->is_finalizing) return kInvalidUsage;
  comm->is_finalizing = true;
  comm->polls_to_go = kPollsUntilReady;
  ++comm->clique->n_finalized;
  return kInProgress;
}
int ncclCommDestroy(ncclComm* comm) {
  const Lock lock(runtime_lock());
  if (!comm->is_finalizing || comm->polls_to_go > 0) return kInvalidUsage;
  leave(comm);
  return kSuccess;
}
int ncclCommAbort(ncclComm* comm) {
  const Lock lock(runtime_lock());
  comm->clique->somebody_aborted = true;
  comm->clique->sends.clear();
  comm->clique->receives.clear();
  leave(comm);
  return kSuccess;
}

void fake_nccl_fail_after(int n_polls) {
  const Lock lock(runtime_lock());
  state().fail_after_polls = n_polls;
}
void fake_nccl_stall(int stalled) {
  const Lock lock(runtime_lock());
  state().stalled = stalled != 0;
}
int fake_nccl_communicators() {
  const Lock lock(runtime_lock());
  return state().n_alive;
}
int fake_nccl_ids() {
  const Lock lock(runtime_lock());
  return state().n_ids;
}

}  // extern "C"
