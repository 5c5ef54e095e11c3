// What all MPI communicators of a process share: the duplicate of MPI_COMM_WORLD that carries their
// messages, and a second one for notices of failure. Included by mpi*.cc only.
#pragma once
#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cluster/comm/verdict.h"

namespace longhaul {

// MPI knows nothing of a peer's failure, so each rank keeps a receive open for a notice, and looks
// at it while it waits. Thread: the one that made it, except where noted.
class MpiJob {
 public:
  // Collective over all processes.
  explicit MpiJob(std::size_t piece_bytes);
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  MPI_Comm messages() const { return messages_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t piece_bytes() const { return piece_bytes_; }
  // Tags are numbers in [0, max_tag()].
  int max_tag() const { return max_tag_; }
  const std::shared_ptr<FailureFlag>& aborted() const { return aborted_; }

  // Lets MPI advance all transfers; raises the flag when a notice has come.
  void poll();
  // Any thread, but only the owning one may use MPI: on others this does nothing, and the owner
  // calls it when it finds the flag raised. Tells the other ranks, once.
  void tell_peers(const Verdict& verdict) noexcept;
  // After a failure: keeps MPI's objects until the process ends. Peers may still send to them, and
  // freeing them may block.
  void leave_open() { leave_open_ = true; }

 private:
  struct Notice {
    std::int32_t rank = 0;
    std::int32_t code = 0;
    std::array<char, 504> text{};  // ends with 0
  };
  void send_notices(const Verdict& verdict);

  const std::size_t piece_bytes_;
  const std::thread::id owner_ = std::this_thread::get_id();
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = 32767;
  std::shared_ptr<FailureFlag> aborted_ = std::make_shared<FailureFlag>();
  bool leave_open_ = false;
  bool told_ = false;  // notices are sent, or this rank was itself told by one
  // On the heap: after a failure MPI may still use them when this object is gone.
  struct Buffers {
    Notice incoming;
    Notice outgoing;
    MPI_Request receive = MPI_REQUEST_NULL;
    std::vector<MPI_Request> sends;
  };
  std::unique_ptr<Buffers> buffers_ = std::make_unique<Buffers>();
};

}  // namespace longhaul
